"""Intake: a batch of letters in; trace, decide, put, commit.

The effects of one batch, in their order, and what a crash after each costs:

1. begin a transaction                                    nothing
2. write the entries to the changelog, one outcome each,
   and one record of all lineages                         nothing: the transaction is undone, the letters are read again
3. make the letters' offsets part of it                   the same
4. commit                                                 nothing: the letters are taken in, once

A letter that must not be retried becomes an entry too, due at once, with the parking topic as its destination: what
leaves the service leaves it by one way. Nothing here reads a clock or draws a number.

Messages of a door's topics go to that door, and what it puts down goes the same way.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from retry.intake import attempts
from retry.intake.decide import Case, decide
from retry.intake.entry_source import Door
from retry.intake.pointer_letters import Fetch, fill
from retry.intake.build_entry import Packed, Packer
from retry.policies.registry import Registry
from retry.intake.settled import Settled
from retry.dead_letters.dead_letter import Letter, read
from retry.telemetry import fingerprint
from retry.telemetry.outcomes import VERSION, Outcome, to_json
from retry.telemetry.recovery_ratio import MINUTE_MS, Retry, attempt_label
from retry.intake.attempts.attempt_counter import Tracer
from retry.intake.fast_path import Usual

_TOGETHER = 512


class Writer(Protocol):
    """The part of a transaction that intake uses; see `retry.kafka.transactional_producer`."""

    def begin(self) -> None: ...
    def write(self, topic: str, partition: int, rows: list[dict[str, Any]]) -> None: ...
    def read_to(self, positions: list[Any], member: object) -> None: ...
    def commit(self) -> None: ...


class Intake:
    """Turns letters into entries under one registry of policies.

    Args:
      registry: topic → team → policy.
      tracer: knows the past of letters.
      packer: makes entries.
      fetch: gets the records that pointer letters name; None where they are decided as they are, without a payload.
      names: the service's own topics, see `retry.kafka.topics.names`.
      partitions: how many each of these topics has.
      doors: what is read besides dead letters.
    """

    def __init__(
        self, registry: Registry, tracer: Tracer, packer: Packer, fetch: Fetch | None, names: Any,
        partitions: Mapping[str, int], doors: Sequence[Door] = (),
    ) -> None:
        self._registry, self._tracer, self._packer, self._fetch = registry, tracer, packer, fetch
        self._names, self._partitions, self._shards = names, partitions, partitions[names.changelog]
        self._usual = Usual(registry, tracer, packer, self._shards)
        self._policies: dict[bytes | None, str] = {
            plan.name.encode(): plan.name for route in registry.routes() for plan in route.plans()
        }
        self._doors, self._door_of = doors, dict[str, Door | None]()

    def reads(self, topic: str) -> bool:
        """Whether its registry has policies for this topic, or a door reads it."""
        return self._registry.reads(topic) or any(door.reads(topic) for door in self._doors)

    def settle(self, messages: Iterable[Any], now_ms: int) -> Settled:
        """What to write for a batch of letters; nothing is written yet."""
        settled, waiting = Settled(), iter(messages)
        self._tracer.begin()
        while some := list(islice(waiting, _TOGETHER)):
            if self._doors:
                some = self._by_doors(some, now_ms, settled)
            others = self._usual.settle(some, now_ms, settled)
            some.clear()
            for case, packed in self._decided(others, now_ms):
                self._add(case, packed, now_ms, settled)
        settled.pack()
        return settled

    def _by_doors(self, some: list[Any], now_ms: int, into: Settled) -> list[Any]:
        """Give doors what is theirs; the letters, in their order."""
        of_door: dict[int, tuple[Door, list[Any]]] = {}
        letters = []
        for message in some:
            topic = message.topic()
            if topic not in self._door_of:
                self._door_of[topic] = next((door for door in self._doors if door.reads(topic)), None)
            door = self._door_of[topic]
            if door is None:
                letters.append(message)
            else:
                of_door.setdefault(id(door), (door, []))[1].append(message)
        for door, messages in of_door.values():
            door.settle(messages, now_ms, into)
        return letters

    def _add(self, case: Case, packed: Packed, now_ms: int, to: Settled) -> None:
        letter, trace, reason = case.letter, case.trace, packed.reason
        to.entries[self._shard(letter)].append({"key": packed.key, "value": packed.envelope})
        to.outcomes.append({"key": trace.id, "value": to_json(_outcome(case, packed.destination, reason, now_ms))})
        sent = 0 if reason else case.attempt
        to.traces.append(
            attempts.row(trace.number, trace.print, case.due_at_ms, case.first_failed_at_ms, sent, trace.matched)
        )
        to.decided[case.route.team, "park" if reason else "retry"] += 1
        to.families[letter.failure.family] += 1
        to.failures[case.route.team, letter.failure.cause or letter.failure.exception, case.attempt - 1] += 1
        if reason:
            to.parked[case.route.team, case.plan.name, reason] += 1
        if trace.made:
            to.back[self._failed(case, trace.made)] += 1
        if trace.made and (target := case.plan.fixed_target if reason else packed.destination):
            to.came_back[target] += 1

    def _failed(self, case: Case, attempt: int) -> Retry:
        """The retry that failed, as far as the letter says and the policy file knows of it."""
        letter = case.letter
        sent_ms = case.failed_at_ms if letter.sent_at_ms is None else letter.sent_at_ms
        policy = self._policies.get(letter.policy, case.plan.name)
        return Retry(case.route.team, policy, attempt_label(attempt), sent_ms // MINUTE_MS)

    def decided(self, messages: Iterable[Any], now_ms: int) -> Iterator[tuple[Case, Packed]]:
        """Letter by letter, in their order: what is decided, and the entry that carries it out.

        A few hundred letters go through one step together: its code and their data stay at hand, which saves a tenth.
        """
        waiting = iter(messages)
        self._tracer.begin()
        while some := list(islice(waiting, _TOGETHER)):
            yield from self._decided(some, now_ms)

    def _decided(self, some: list[Any], now_ms: int) -> Iterator[tuple[Case, Packed]]:
        trace = self._tracer.trace
        routes = [self._registry.route(message.topic()) for message in some]
        letters = [read(message, route.aliases) for message, route in zip(some, routes, strict=True)]
        some.clear()
        unfit = fill(letters, routes, self._fetch)
        windows = [route.usual.policy.max_age_ms for route in routes]
        pasts = [trace(letter, now_ms, window) for letter, window in zip(letters, windows, strict=True)]
        cases = [
            decide(route, letter, past, now_ms, unfit.get(n) if unfit else None)
            for n, (route, letter, past) in enumerate(zip(routes, letters, pasts, strict=True))
        ]
        return zip(cases, map(self._packer.pack, cases), strict=True)

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
            writer.write(self._names.changelog, shard, entries_of_shard)
            # Copied by now, and still at hand: to touch it later, only to let it go, costs far more.
            entries_of_shard.clear()
        # In one partition each: every partition that a transaction touches costs the brokers more than a hundred records.
        draw = zlib.crc32(settled.outcomes[0]["value"]) if settled.outcomes else 0
        for topic, rows in ((self._names.outcomes, settled.outcomes), (self._names.lineage, settled.lineages)):
            writer.write(topic, draw % self._partitions[topic], rows)
            rows.clear()
        writer.read_to(positions, member)
        writer.commit()

    def _shard(self, letter: Letter) -> int:
        # All letters of one key wait in one shard, so that their order can be kept; those without a key are spread.
        return zlib.crc32(letter.source if letter.key is None else letter.key) % self._shards


def _outcome(case: Case, target: str, reason: str | None, now_ms: int) -> Outcome:
    letter, failure = case.letter, case.letter.failure
    return {
        "v": VERSION,
        "id": case.trace.id.decode(),
        "source": letter.source.decode(),
        "team": case.route.team,
        "topic": letter.topic,
        "policy": case.plan.name,
        "attempt": case.attempt,
        "exception": failure.cause or failure.exception,
        "first_failed_ms": case.first_failed_at_ms,
        "failed_ms": case.failed_at_ms,
        "taken_ms": now_ms,
        "decision": "park" if reason else "retry",
        "reason": reason,
        "due_ms": None if reason else case.due_at_ms,
        "target": target,
        "cause": failure.cause,
        "fingerprint": fingerprint.of(failure.exception, failure.cause, failure.message),
        "group": failure.consumer_group or case.route.group,
        "delay_ms": None if reason else case.due_at_ms - case.failed_at_ms,
    }
