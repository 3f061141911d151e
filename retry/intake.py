"""Intake: a batch of letters in; decide, put, commit.

The effects of one batch, in their order, and what a crash after each costs:

1. begin a transaction                                    nothing
2. write the entries to the changelog, one outcome each   nothing: the transaction is undone, the letters are read again
3. make the letters' offsets part of it                   the same
4. commit                                                 nothing: the letters are taken in, once

A letter that must not be retried becomes an entry too, due at once, with the parking topic as its destination: what
leaves the service leaves it by one way. Nothing here reads a clock or draws a number; the same letter always makes the
same entry.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from backoff import RetryAt
from retry import entry as entries
from retry.entry import Entry, Headers
from retry.policies.registry import ORIGIN, Plan, Registry, Route
from retry.sources import headers as names
from retry.sources.dead_letter import NO_TIME, Letter, read
from retry.telemetry.outcomes import VERSION, Outcome, to_json

_RECORD_BYTES = 1_048_588 - 256
_REFERENCE_KEY_BYTES_MAX = 1_024
_ANY_PARTITION = -1
_DRAWS = 1 << 32


class Writer(Protocol):
    """The part of a transaction that intake uses; see `retry.kafka.transactions`."""

    def begin(self) -> None: ...
    def write(self, topic: str, partition: int, rows: list[dict[str, Any]]) -> None: ...
    def read_to(self, positions: list[Any], member: object) -> None: ...
    def commit(self) -> None: ...


Rows = list[dict[str, Any]]


class Settled(NamedTuple):
    """What to write for one batch of letters.

    Attributes:
      entries: changelog rows by shard.
      outcomes: one row a letter.
      decided: letters by (team, decision).
    """

    entries: dict[int, Rows]
    outcomes: Rows
    decided: Counter[tuple[str, str]]


class _Case(msgspec.Struct, frozen=True, gc=False):
    """A letter and what was decided; `reason` says why it parks, and is None where it is retried."""

    letter: Letter
    route: Route
    plan: Plan
    reason: str | None
    due_at_ms: int
    failed_at_ms: int
    first_failed_at_ms: int


class Intake:
    """Turns letters into entries under one registry of policies.

    Args:
      registry: topic → team → policy.
      changelog, shards: where entries go, and how many partitions it has.
      outcomes, parked: topics for outcomes, and for letters whose policy names no parking topic.
      bytes_max: by topic, the largest record that it takes; the changelog's is among them.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        changelog: str,
        shards: int,
        outcomes: str,
        parked: str,
        bytes_max: Mapping[str, int],
    ) -> None:
        self._registry, self._changelog, self._shards = registry, changelog, shards
        self._outcomes, self._parked, self._bytes_max = outcomes, parked, bytes_max
        # Nearly every letter is smaller than what any topic takes, and needs no closer look.
        self._safe_bytes = min([_RECORD_BYTES, *bytes_max.values()])

    def settle(self, messages: Iterable[Any], now_ms: int) -> Settled:
        """What to write for a batch of letters; nothing is written yet."""
        shards: list[Rows] = [[] for _ in range(self._shards)]
        outcomes: Rows = []
        decided: list[tuple[str, str]] = []
        for message in messages:
            case = self._case(read(message), now_ms)
            entry, envelope, reason = self._packed(case)
            outcome = _outcome(case, entry.destination, reason, now_ms)
            shards[self._shard(case.letter)].append({"key": _key(case), "value": envelope})
            outcomes.append({"key": case.letter.id, "value": to_json(outcome)})
            decided.append((case.route.team, outcome["decision"]))
        return Settled({n: rows for n, rows in enumerate(shards) if rows}, outcomes, Counter(decided))

    def commit(self, settled: Settled, positions: list[Any], member: object, writer: Writer) -> None:
        """Write it; the steps are those of the module's docstring.

        Args:
          positions: where reading goes on after these letters.
          member: proof that the reader is still in its group.

        Raises:
          TransactionFailed: nothing was taken in; the letters must be read again.
        """
        writer.begin()
        for shard, entries_of_shard in settled.entries.items():
            writer.write(self._changelog, shard, entries_of_shard)
        writer.write(self._outcomes, _ANY_PARTITION, settled.outcomes)
        writer.read_to(positions, member)
        writer.commit()

    def _case(self, letter: Letter, now_ms: int) -> _Case:
        route = self._registry.route(letter.topic)
        plan = route.plan(letter.failure.cause or letter.failure.exception)
        failed_at_ms = letter.failed_at_ms(now_ms)
        first_ms = failed_at_ms if letter.first_failed_at_ms is None else letter.first_failed_at_ms
        reason = _refusal(letter, route, plan)
        if reason is None:
            decision = plan.policy.decide(
                attempt=(letter.retries_made or 0) + 1,
                first_failed_at_ms=first_ms,
                failed_at_ms=failed_at_ms,
                now_ms=now_ms,
                draw=zlib.crc32(letter.source) / _DRAWS,
                retry_at_ms=letter.retry_at_ms,
            )
            if isinstance(decision, RetryAt):
                return _Case(letter, route, plan, None, decision.due_at_ms, failed_at_ms, first_ms)
            reason = decision.reason
        return _Case(letter, route, plan, reason, now_ms, failed_at_ms, first_ms)

    def _packed(self, case: _Case) -> tuple[Entry, bytes, str | None]:
        """The entry, its envelope, and why it is parked: in a form that its topic and the changelog take."""
        letter = case.letter
        if not letter.copyable():
            return self._reference(case)
        ours = _ours(case)
        target = self._parking(case.plan) if case.reason else _target(letter, case.plan)
        whole = Entry(target, letter.key, letter.value, letter.kept + ours, letter.timestamp_ms, case.route.team)
        envelope = entries.encode(whole)
        if len(envelope) <= self._safe_bytes or len(envelope) <= self._limit(target):
            return whole, envelope, case.reason
        essential = [header for header in ours if header[0] in names.ESSENTIAL]
        lean = msgspec.structs.replace(whole, headers=letter.kept + essential)
        envelope = entries.encode(lean)
        if len(envelope) <= self._limit(target):
            return lean, envelope, case.reason
        return self._reference(case if case.reason else msgspec.structs.replace(case, reason="too_large"))

    def _reference(self, case: _Case) -> tuple[Entry, bytes, str | None]:
        """The letter without payload, to be parked: its coordinates say where the whole of it lies."""
        letter = case.letter
        key = letter.key if letter.key is not None and len(letter.key) <= _REFERENCE_KEY_BYTES_MAX else None
        reference = Entry(self._parking(case.plan), key, None, _ours(case), letter.timestamp_ms, case.route.team)
        return reference, entries.encode(reference), case.reason

    def _shard(self, letter: Letter) -> int:
        # All letters of one key wait in one shard, so that their order can be kept; those without a key are spread.
        return zlib.crc32(letter.source if letter.key is None else letter.key) % self._shards

    def _parking(self, plan: Plan) -> str:
        return plan.park_to or self._parked

    def _limit(self, topic: str) -> int:
        return min(self._bytes_max.get(topic, _RECORD_BYTES), self._bytes_max.get(self._changelog, _RECORD_BYTES))


def _refusal(letter: Letter, route: Route, plan: Plan) -> str | None:
    """Why this letter must not be retried, whatever its number and age; None where it may."""
    if not letter.copyable():
        return "unreadable_headers"
    if plan.park:
        return "rule"
    if letter.retries_made is None:
        return "bad_attempt"
    if letter.retry_at_ms == NO_TIME and plan.policy.honour_retry_at:
        return "bad_due"
    if plan.retry_to is None:
        return "no_policy"
    if plan.retry_to == ORIGIN and letter.failure.origin_topic is None:
        return "no_origin"
    if plan.retry_to == ORIGIN and letter.failure.origin_topic not in (route.allowed_targets or ()):
        return "target_not_allowed"
    return None


def _target(letter: Letter, plan: Plan) -> str:
    return (letter.failure.origin_topic if plan.retry_to == ORIGIN else plan.retry_to) or ""


def _ours(case: _Case) -> Headers:
    letter = case.letter
    made = letter.retries_made or 0
    ours: Headers = [
        (names.ID, letter.id),
        (names.ATTEMPT, b"%d" % (made if case.reason else made + 1)),
        (names.SOURCE, letter.source),
        (names.DUE_MS, b"%d" % case.due_at_ms),
        (names.POLICY, case.plan.name.encode()),
        (names.FIRST_FAILED_MS, b"%d" % case.first_failed_at_ms),
    ]
    if case.reason:
        ours.append((names.PARKED_REASON, case.reason.encode()))
    return ours


def _key(case: _Case) -> bytes:
    letter = case.letter
    return entries.key(case.due_at_ms, entries.key_stem(letter.topic, letter.partition), letter.offset)


def _outcome(case: _Case, target: str, reason: str | None, now_ms: int) -> Outcome:
    letter = case.letter
    return {
        "v": VERSION,
        "id": letter.id.decode(),
        "source": letter.source.decode(),
        "team": case.route.team,
        "topic": letter.topic,
        "policy": case.plan.name,
        "attempt": (letter.retries_made or 0) + 1,
        "exception": letter.failure.cause or letter.failure.exception,
        "first_failed_ms": case.first_failed_at_ms,
        "failed_ms": case.failed_at_ms,
        "taken_ms": now_ms,
        "decision": "park" if reason else "retry",
        "reason": reason,
        "due_ms": None if reason else case.due_at_ms,
        "target": target,
    }
