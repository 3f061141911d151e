"""The usual letter: a first failure that says nothing of itself but, perhaps, when it wishes to come back.

Most letters of most topics are like that, and for all of one partition the answers to most questions are the same: route,
plan, target, lane, half of the key and of the outcome. They are found once (`Form`), and each letter is settled in one pass.
What it writes is what `trace`, `decide` and `pack` would write, byte for byte; whatever is not usual is left to them.
`tests/unit/test_usual.py` holds both against each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple
from zlib import crc32

from backoff import Policy
from retry.delay_queue import entry as entries
from retry.intake.decide import DRAWS
from retry.delay_queue.entry import Entry
from retry.record import Header, Headers
from retry.dead_letters.failure import UNKNOWN
from retry.intake.attempts import SECOND_MAX
from retry.intake.build_entry import Packer
from retry.policies.registry import Registry
from retry.intake.settled import Settled
from retry.dead_letters import frameworks
from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import LIKELY_MS, Untold, moment
from retry.telemetry import outcomes
from retry.intake.attempts.attempt_counter import Tracer

_TELLING = frameworks.KNOWN | names.OURS
_STAMPED = (1, 2)
_ID, _SOURCE, _DUE_MS, _FIRST_FAILED_MS, _RETRY_AT_MS = (
    names.ID, names.SOURCE, names.DUE_MS, names.FIRST_FAILED_MS, names.RETRY_AT_MS,
)  # fmt: skip
_FIRST: Header = (names.ATTEMPT, b"1")


class Form(NamedTuple):
    """What the usual letters of one partition of a dead-letter topic have in common; `outcome` is cut where they differ."""

    topic: str
    team: str
    target: str
    policy: Policy
    named: Header
    lane: bytes
    stem: bytes
    source: bytes
    outcome: list[bytes]


class Usual:
    """Settles usual letters.

    Args:
      shards: how many there are.
    """

    def __init__(self, registry: Registry, tracer: Tracer, packer: Packer, shards: int) -> None:
        self._registry, self._new, self._bytes_max, self._shards = registry, tracer.new, packer.safe_bytes, shards
        self._forms: dict[tuple[str, int], Form | None] = {}

    def form(self, topic: str, partition: int) -> Form | None:
        """Of this partition; None where its letters need a closer look, each of them."""
        route, failure = self._registry.route(topic), frameworks.unknown(topic)
        plan = None if route.aliases else route.plan_by_names(failure)
        if plan is None or plan.park or plan.ordered or plan.template or plan.retry_to is None:
            return None
        return Form(
            topic,
            route.team,
            plan.retry_to,
            plan.policy,
            (names.POLICY, plan.name.encode()),
            entries.lane(route.team, topic, plan.retry_to),
            entries.key_stem(topic, partition),
            b"%b/%d/" % (topic.encode(), partition),
            outcomes.parts(team=route.team, topic=topic, policy=plan.name, target=plan.retry_to, group=route.group),
        )

    def settle(self, messages: Iterable[Any], now_ms: int, into: Settled) -> list[Any]:
        """Put down what is to be written for the usual letters among these; the others, in their order."""
        others, counted, forms, taken = [], Counter[str](), self._forms, b"%d" % now_ms
        for message in messages:
            place = message.topic(), message.partition()
            if place not in forms:
                forms[place] = self.form(*place)
            form = forms[place]
            if form is None:
                others.append(message)
                continue
            try:
                headers = message.headers() or []
            except SystemError:
                others.append(Untold(message))
                continue
            if self._settle(form, message, headers, now_ms, taken, into):
                counted[form.team] += 1
            else:
                others.append(message)
        for team, letters in counted.items():
            into.decided[team, "retry"] += letters
            into.families[UNKNOWN] += letters
            into.failures[team, None, 0] += letters
        return others

    def _settle(self, form: Form, message: Any, kept: Headers, now_ms: int, taken: bytes, into: Settled) -> bool:
        """Whether this letter was usual; called for nearly every one, so what can be is done here and not in functions."""
        wish_ms = None
        for header in kept:
            if header[0] not in _TELLING:
                continue
            if header[0] != _RETRY_AT_MS or wish_ms is not None or (wish_ms := moment(header[1])) is None:
                return False
        key, value, offset, (kind, stamp_ms) = message.key(), message.value(), message.offset(), message.timestamp()
        if frameworks.may_be(value) or (new := self._new(form.topic, key, value)) is None:
            return False
        print_, lineage, number = new
        timestamp_ms = stamp_ms if stamp_ms > 0 and kind in _STAMPED else None
        failed_ms = now_ms if stamp_ms < LIKELY_MS or timestamp_ms is None else stamp_ms
        source = b"%b%d" % (form.source, offset)
        draw = crc32(source)
        due_ms = form.policy.due_at_ms(1, failed_ms, failed_ms, now_ms, draw / DRAWS, wish_ms)
        if not isinstance(due_ms, int) or not 0 < due_ms // 1_000 <= SECOND_MAX:
            return False
        due, failed = b"%d" % due_ms, b"%d" % failed_ms
        headers = [header for header in kept if header[0] != _RETRY_AT_MS] if wish_ms is not None else list(kept)
        headers += (
            (_ID, lineage), _FIRST, (_SOURCE, source), (_DUE_MS, due), form.named, (_FIRST_FAILED_MS, failed),
        )  # fmt: skip
        envelope = entries.encode(Entry(form.target, key, value, headers, timestamp_ms, form.team, failed_ms))
        if len(envelope) > self._bytes_max:
            return False
        a, b, c, d, e, f, g, h = form.outcome
        outcome = b"".join((a, lineage, b, source, c, failed, d, failed, e, taken, f, due, g, b"%d" % (due_ms - failed_ms), h))
        entry_key = entries.key(due_ms, form.stem, offset, form.lane)
        into.entries[(draw if key is None else crc32(key)) % self._shards].append({"key": entry_key, "value": envelope})
        into.outcomes.append({"key": lineage, "value": outcome})
        into.traces.append((number, print_, due_ms // 1_000, failed_ms // 1_000, 1, 0))
        return True
