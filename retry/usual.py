"""The usual letter: a first failure that says nothing of itself but, perhaps, when it wishes to come back.

Most letters of most topics are like that, and for all of one partition the answers to most questions are the same: route,
plan, target, lane, half of the key and of the outcome. They are found once (`Form`), and each letter is settled in one pass,
three times as fast as by `trace`, `decide` and `pack`. What it writes is what they would write, byte for byte; whatever is
not usual is left to them. `tests/unit/test_usual.py` holds both against each other.
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

from backoff import Policy, RetryAt
from retry import entry as entries
from retry import lineages
from retry.decide import draw
from retry.entry import Entry, Header
from retry.failure import UNKNOWN
from retry.pack import Packer
from retry.policies.registry import Registry
from retry.sources import dialects
from retry.sources import headers as names
from retry.sources.dead_letter import LIKELY_MS, moment
from retry.telemetry.outcomes import template
from retry.trace import Tracer

_TELLING = dialects.KNOWN | names.OURS
_FIRST: Header = (names.ATTEMPT, b"1")
_STAMPED = (1, 2)
_ID, _SOURCE, _DUE_MS, _FIRST_FAILED_MS, _RETRY_AT_MS = (
    names.ID, names.SOURCE, names.DUE_MS, names.FIRST_FAILED_MS, names.RETRY_AT_MS,
)  # fmt: skip


class Done(NamedTuple):
    """What is to be written for one letter, and what is counted of it; see `retry.intake.Settled`."""

    shard: int
    entry: dict[str, bytes]
    outcome: dict[str, bytes]
    lineage: lineages.Row
    decided: tuple[str, str]
    family: str
    came_back: str | None


class Form(NamedTuple):
    """What the usual letters of one partition of a dead-letter topic have in common.

    Attributes:
      outcome: the outcome as a template: id, source, three times and the due time are left open.
      window_ms: how long ago a send may lie that a letter is taken to come back from.
    """

    topic: str
    team: str
    decided: tuple[str, str]
    target: str
    window_ms: int
    policy: Policy
    named: Header
    lane: bytes
    stem: bytes
    source: bytes
    outcome: bytes


class Usual:
    """Settles usual letters.

    Args:
      shards: how many there are.
    """

    def __init__(self, registry: Registry, tracer: Tracer, packer: Packer, shards: int) -> None:
        self._registry, self._new, self._safe_bytes, self._shards = registry, tracer.new, packer.safe_bytes, shards
        self._forms: dict[tuple[str, int], Form | None] = {}

    def form(self, topic: str, partition: int) -> Form | None:
        """Of this partition; None where its letters need a closer look, each of them."""
        place = topic, partition
        if place not in self._forms:
            self._forms[place] = self._found(topic, partition)
        return self._forms[place]

    def _found(self, topic: str, partition: int) -> Form | None:
        route, failure = self._registry.route(topic), dialects.unknown(topic)
        plan = None if route.aliases else route.plan_by_names(failure)
        if plan is None or plan.park or plan.ordered or plan.template or plan.retry_to is None:
            return None
        target = plan.retry_to
        return Form(
            topic,
            route.team,
            (route.team, "retry"),
            target,
            route.usual.policy.max_age_ms,
            plan.policy,
            (names.POLICY, plan.name.encode()),
            entries.lane(route.team, topic, target),
            entries.key_stem(topic, partition),
            b"%b/%d/" % (topic.encode(), partition),
            template(team=route.team, topic=topic, policy=plan.name, target=target),
        )

    def settle(self, form: Form, message: Any, now_ms: int) -> Done | None:
        """What to write for a letter of this form; None where it is not usual."""
        try:
            kept = message.headers() or []
        except SystemError:
            return None
        wish_ms = None
        for header in kept:
            if header[0] not in _TELLING:
                continue
            if header[0] != _RETRY_AT_MS or wish_ms is not None or (wish_ms := moment(header[1])) is None:
                return None
        if wish_ms is not None:
            kept = [header for header in kept if header[0] != _RETRY_AT_MS]
        value = message.value()
        if dialects.may_be(value):
            return None
        key, offset, (kind, stamp_ms) = message.key(), message.offset(), message.timestamp()
        timestamp_ms = stamp_ms if stamp_ms > 0 and kind in _STAMPED else None
        failed_at_ms = now_ms if timestamp_ms is None or timestamp_ms < LIKELY_MS else timestamp_ms
        known = self._new(form.topic, key, value, now_ms, form.window_ms)
        if known is None:
            return None
        lineage, number, print_ = known
        source = b"%b%d" % (form.source, offset)
        decision = form.policy.decide(
            attempt=1, first_failed_at_ms=failed_at_ms, failed_at_ms=failed_at_ms, now_ms=now_ms, draw=draw(source),
            retry_at_ms=wish_ms,
        )  # fmt: skip
        if not isinstance(decision, RetryAt):
            return None
        due_ms = decision.due_at_ms
        ours = [
            (_ID, lineage), _FIRST, (_SOURCE, source), (_DUE_MS, b"%d" % due_ms), form.named,
            (_FIRST_FAILED_MS, b"%d" % failed_at_ms),
        ]  # fmt: skip
        envelope = entries.encode(Entry(form.target, key, value, kept + ours, timestamp_ms, form.team, failed_at_ms))
        if len(envelope) > self._safe_bytes:
            return None
        outcome = form.outcome % (lineage, source, failed_at_ms, failed_at_ms, now_ms, due_ms)
        return Done(
            zlib.crc32(source if key is None else key) % self._shards,
            {"key": entries.key(due_ms, form.stem, offset, form.lane), "value": envelope},
            {"key": lineage, "value": outcome},
            lineages.row(number, print_, due_ms, failed_at_ms, 1),
            form.decided,
            UNKNOWN,
            None,
        )
