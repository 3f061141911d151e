"""What became of the letters that an action has sent: recovered so far, failed again, or not known yet; by step of its ramp.

A letter has recovered so far as soon as its consumer group has committed past it and it has not failed again. Until then nothing
is known of it; where nothing tells what the group has committed, silence counts, for the settle time. What a ramp has sent,
what failed again of that, and that consumers have passed a step, workers find out themselves, and the samples of committed
offsets say so seconds later; of other actions the replica knows what left in the last day, see `retry.console.folding.attempts`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from retry.console.folding.attempts import SETTLE_MS, find_passed_ms
from retry.delay_queue.action_records import EDIT, PATCH, REDIRECT, RETRY
from retry.delay_queue.ramp_records import FAILED
from retry.operations.act.overview import ActionOverview

# After these, letters are sent and may recover.
SENDING_KINDS = (RETRY, REDIRECT, EDIT, PATCH)
# A letter that was returned was parked before, and failed again where a later one of its lineage was taken in.
_FAILED_AGAIN = (
    "(came_back OR (ifnull(decision, '') != 'retry' AND EXISTS (SELECT 1 FROM attempts f WHERE f.lineage = a.lineage"
    " AND f.decision IS NOT NULL AND f.taken_ms > a.left_ms)))"
)


class SentOutcome(NamedTuple):
    sent: int = 0
    failed_again: int = 0
    not_known_yet: int = 0

    @property
    def recovered(self) -> int:
        """Letters that their consumer group has committed past, and that have not failed again so far."""
        return max(0, self.sent - self.failed_again - self.not_known_yet)


class ActionOutcome(NamedTuple):
    """The outcome of all letters of an action, and of each step of its ramp."""

    total: SentOutcome
    steps: tuple[SentOutcome, ...] = ()


def count_outcomes(
    connection: sqlite3.Connection, about: ActionOverview, group_topics: Mapping[str, Collection[str]], now_ms: int
) -> ActionOutcome:
    """Count what became of letters that an action has sent; `group_topics` has what groups of the policy file read."""
    if (ramp := about.action.ramp) is None:
        counts = list(_count_all(connection, about.id.hex(), group_topics, now_ms))
        return ActionOutcome(_add_outcomes(counts))
    unknown = dict.fromkeys(range(len(ramp.steps)), 0)
    silence_ms = min(ramp.silence_ms, SETTLE_MS)
    for target, passed_ms in _list_passed(connection, about.id.hex(), group_topics, now_ms, silence_ms):
        for step, count in connection.execute(
            "SELECT step, count(*) FROM attempts a WHERE action = ? AND left_for = ? AND left_ms > ?"
            f" AND NOT {_FAILED_AGAIN} GROUP BY step", (about.id.hex(), target, passed_ms),
        ):  # fmt: skip
            # Of a step that workers judged they have seen that its consumers passed it, or the silence that stands for that.
            if step in unknown and not about.step.since <= step < about.step.step:
                unknown[step] += count
    steps = tuple(SentOutcome(each.sent, each.failed, min(unknown[n], each.sent)) for n, each in enumerate(about.steps))
    return ActionOutcome(_add_outcomes(steps), steps)


def _count_all(
    connection: sqlite3.Connection, action: str, group_topics: Mapping[str, Collection[str]], now_ms: int
) -> Iterator[SentOutcome]:
    for target, passed_ms in _list_passed(connection, action, group_topics, now_ms, SETTLE_MS):
        counts = connection.execute(
            f"SELECT count(*), sum(failed), sum(left_ms > ? AND NOT failed) FROM (SELECT left_ms, {_FAILED_AGAIN} AS failed"
            " FROM attempts a WHERE action = ? AND left_for = ?)", (passed_ms, action, target),
        ).fetchone()  # fmt: skip
        yield SentOutcome(*(int(count or 0) for count in counts))


def _list_passed(
    connection: sqlite3.Connection, action: str, group_topics: Mapping[str, Collection[str]], now_ms: int, silence_ms: int
) -> list[tuple[str, int]]:
    """List the topics that letters of an action were sent to, and up to when consumers have passed what was sent there."""
    targets = connection.execute(
        "SELECT DISTINCT left_for FROM attempts WHERE action = ? AND left_for IS NOT NULL ORDER BY 1", (action,)
    ).fetchall()
    groups = {target: [group for group, read in group_topics.items() if target in read] for (target,) in targets}
    return [(target, find_passed_ms(connection, of, target, now_ms, silence_ms)) for target, of in groups.items()]


def _add_outcomes(outcomes: Collection[SentOutcome]) -> SentOutcome:
    return SentOutcome(*map(sum, zip(*outcomes, strict=True))) if outcomes else SentOutcome()


def select_failed_lineages(action: str) -> tuple[str, tuple[object, ...]]:
    """Build a query, with its parameters, for the lineages of which a letter failed again after an action had sent it."""
    begin = FAILED + bytes.fromhex(action)
    query = (
        f"SELECT a.lineage FROM attempts a WHERE a.action = ? AND a.left_for IS NOT NULL AND {_FAILED_AGAIN}"
        " UNION SELECT lower(hex(substr(mark, 12, 8))) FROM ramp_failed WHERE mark >= ? AND mark < ?"
    )
    return query, (action, begin, begin + b"\xff" * 16)
