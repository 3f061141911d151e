"""Intake: a batch of letters in; trace, decide, put.

The effects of one batch, in their order, and what a crash after each costs:

1. begin a transaction                                    nothing
2. write the entries to the changelog, and few records
   of all outcomes and of all lineages, and how far each
   partition was read                                     nothing: the transaction is undone, the letters are read again
3. make the letters' offsets part of it                   the same
4. commit, see `retry.intake.overlapping_transactions`    nothing: the letters are taken in, once

A letter that must not be retried becomes an entry too, due at once, with the parking topic as its destination: what
leaves the service leaves it by one way. Nothing here reads a clock or draws a number.

Messages of an entry source's topics go to that source, and what it puts down goes the same way.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from retry import clock
from retry.dead_letters.dead_letter import Letter, read
from retry.delay_queue import ramp_records
from retry.delay_queue.blocks import count_entries
from retry.intake import attempts, read_positions
from retry.intake.attempts import LineageTopic, RampedLineages
from retry.intake.attempts.attempt_counter import AttemptCounter
from retry.intake.batch import BatchResult, make_shared_fields
from retry.intake.build_entry import BuiltEntry, DecidedLetter, EntryBuilder, decide
from retry.intake.entry_source import EntrySource
from retry.intake.fast_path import FastPath
from retry.intake.pointer_letters import Fetch, fill
from retry.intake.read_positions import ReadPosition
from retry.kafka.interface import Partition, TransactionalProducer
from retry.policies.registry import Registry
from retry.telemetry.recovery_ratio import MINUTE_MS, Retry, attempt_label

# Which shard letters wait in that may wait in any: all of one batch in one, and after a while in another.
#
# Every partition that a transaction touches costs brokers and workers the same with one letter as with a thousand. Letters that
# are due together are sent as they lie in their shard, so that those of one batch keep the order in which they were read.

# A shard that is chosen for long has more than its part of what waits, and is swept by one transaction at a time.
_STAY_S, _LETTERS_MAX = 20.0, 25_000


class HomeShard:
    """Chooses shards, of those that this worker owns and sweeps; for one thread at a time."""

    def __init__(self, shards: int, list_ready: Callable[[], Sequence[int]]) -> None:
        self._shards, self._list_ready = shards, list_ready
        self._home: int | None = None
        self._moves, self._letters = clock.Interval(_STAY_S), 0

    def choose(self, letters: int) -> int:
        ready = sorted(self._list_ready())
        is_over = self._moves.is_due() or self._letters >= _LETTERS_MAX
        if is_over or self._home is None or (ready and self._home not in ready):
            # A worker that owns none lets others deliver.
            candidates = ready or range(self._shards)
            home = -1 if self._home is None else self._home
            self._home, self._letters = next((shard for shard in candidates if shard > home), candidates[0]), 0
        self._letters += letters
        return self._home


_TOGETHER = 512


class Intake:
    """Turns letters into entries under one registry of policies.

    Args:
      fetch: gets the records that pointer letters name; None where they are decided as they are, without a payload.
      sources: what is read besides dead letters.
      home: where letters wait that may wait in any shard; without it, in the first ones.
    """

    def __init__(
        self, registry: Registry, attempt_counter: AttemptCounter, entry_builder: EntryBuilder, fetch: Fetch | None, names: Any,
        partitions: Mapping[str, int], sources: Sequence[EntrySource] = (), ramped: RampedLineages | None = None,
        home: HomeShard | None = None,
    ) -> None:
        self._registry, self._attempt_counter, self._entry_builder, self._fetch = registry, attempt_counter, entry_builder, fetch
        self._names, self._partitions, self._shards = names, partitions, partitions[names.changelog]
        self._policies: dict[bytes | None, str] = {
            plan.name.encode(): plan.name for route in registry.list_routes() for plan in route.plans()
        }
        self._home = home or HomeShard(self._shards, list)
        self._fast_path = FastPath(registry, attempt_counter, entry_builder, self._policies, self._find_spread)
        self._ramped = ramped
        self._lineage_topic = LineageTopic(names.lineage, partitions[names.lineage])
        self._sources, self._source_of = sources, dict[str, EntrySource | None]()

    def reads_topic(self, topic: str) -> bool:
        """Whether its registry has policies for this topic, or an entry source reads it."""
        return self._registry.reads_topic(topic) or any(source.reads_topic(topic) for source in self._sources)

    def prepare(self, messages: Iterable[Any], now_ms: int, incarnations: Mapping[Partition, int] | None = None) -> BatchResult:
        """Prepare what is to be written for a batch of letters; nothing is written yet. For `incarnations` see `BatchResult`."""
        result, waiting = BatchResult(incarnations), iter(messages)
        self._attempt_counter.begin_batch()
        while some := list(islice(waiting, _TOGETHER)):
            if self._sources:
                some = self._by_sources(some, now_ms, result)
            others = self._fast_path.prepare(some, now_ms, result)
            some.clear()
            for decided, packed in self._decide_some(others, now_ms, result.incarnations):
                self._add_decision(decided, packed, result)
                if decided.trace.made and (decided.letter.action or (self._ramped and decided.letter.id is None)):
                    self._mark(decided, now_ms, result)
        result.pack(now_ms)
        return result

    def _by_sources(self, some: list[Any], now_ms: int, into: BatchResult) -> list[Any]:
        """Give entry sources what is theirs; the letters, in their order."""
        of_source: dict[int, tuple[EntrySource, list[Any]]] = {}
        letters = []
        for message in some:
            topic = message.topic()
            if topic not in self._source_of:
                self._source_of[topic] = next((source for source in self._sources if source.reads_topic(topic)), None)
            source = self._source_of[topic]
            if source is None:
                letters.append(message)
            else:
                of_source.setdefault(id(source), (source, []))[1].append(message)
        for source, messages in of_source.values():
            source.prepare(messages, now_ms, into)
        return letters

    def _add_decision(self, decided: DecidedLetter, packed: BuiltEntry, to: BatchResult) -> None:
        letter, trace, reason = decided.letter, decided.trace, packed.reason
        is_limited = not reason and self._find_spread(decided.route.team, packed.destination) is not None
        rows = to.entries[self._shard(letter)] if is_limited or decided.plan.waits_by_key else to.anywhere
        rows.append({"key": packed.key, "value": packed.envelope})
        due_ms = None if reason else decided.due_at_ms
        shared = make_shared_fields(
            decided.route, letter.topic, letter.partition, failure=letter.failure, plan=decided.plan,
            attempt=decided.attempt, reason=reason, target=packed.destination,
        )  # fmt: skip
        to.letters[shared].append((trace.id, letter.offset, decided.first_failed_at_ms, decided.failed_at_ms, due_ms))
        sent = 0 if reason else decided.attempt
        row = attempts.build_fields(trace.number, trace.print, decided.due_at_ms, decided.first_failed_at_ms, sent, trace.matched)
        to.traces[decided.route.team].append(row)
        to.decided[decided.route.team, "park" if reason else "retry"] += 1
        to.families[letter.failure.family] += 1
        to.failures[decided.route.team, letter.failure.cause or letter.failure.exception, decided.attempt - 1] += 1
        if reason:
            to.parked[decided.route.team, decided.plan.name, reason] += 1
        if trace.made:
            to.back[self._describe_failed_retry(decided, trace.made)] += 1
        if trace.made and (target := decided.plan.fixed_target if reason else packed.destination):
            to.came_back[target] += 1

    def _mark(self, decided: DecidedLetter, now_ms: int, to: BatchResult) -> None:
        """Mark what failed again of a ramp, for whoever judges it; by its header, or its lineage where it comes without any."""
        action, number, team = decided.letter.action, decided.trace.number, decided.route.team
        known = self._ramped if action is None else None
        put = ramp_records.read_mark(action) if known is None else known.find_step(team, number)
        if put is not None:
            row = ramp_records.build_failed_row(*put, number, now_ms, team=attempts.shorten_team_number(team))
            to.entries[ramp_records.HOME].append(row)

    def _describe_failed_retry(self, decided: DecidedLetter, attempt: int) -> Retry:
        letter = decided.letter
        sent_ms = decided.failed_at_ms if letter.sent_at_ms is None else letter.sent_at_ms
        policy = self._policies.get(letter.policy, decided.plan.name)
        return Retry(decided.route.team, policy, attempt_label(attempt), sent_ms // MINUTE_MS)

    def decide_letters(self, messages: Iterable[Any], now_ms: int) -> Iterator[tuple[DecidedLetter, BuiltEntry]]:
        """Decide the letters in their order; yield for each what is decided, and the entry that carries the decision out.

        A few hundred letters go through one step together: its code and their data stay at hand, which saves a tenth.
        """
        waiting = iter(messages)
        self._attempt_counter.begin_batch()
        while some := list(islice(waiting, _TOGETHER)):
            yield from self._decide_some(some, now_ms, {})

    def _decide_some(
        self, some: list[Any], now_ms: int, incarnations: Mapping[Partition, int]
    ) -> Iterator[tuple[DecidedLetter, BuiltEntry]]:
        trace = self._attempt_counter.trace
        routes = [self._registry.route(message.topic()) for message in some]
        letters = [read(message, route.aliases) for message, route in zip(some, routes, strict=True)]
        some.clear()
        unfit = fill(letters, routes, self._fetch)
        pasts = [trace(letter, route, now_ms) for letter, route in zip(letters, routes, strict=True)]
        decided_letters = [
            decide(route, letter, past, now_ms, unfit.get(n) if unfit else None)
            for n, (route, letter, past) in enumerate(zip(routes, letters, pasts, strict=True))
        ]
        if incarnations:
            places = [(each.letter.topic, each.letter.partition) for each in decided_letters]
            numbers = [incarnations.get(place, 0) for place in places]
            numbered = zip(decided_letters, numbers, strict=True)
            decided_letters = [msgspec.structs.replace(each, incarnation=n) for each, n in numbered]
        return zip(decided_letters, map(self._entry_builder.pack, decided_letters), strict=True)

    def write(
        self, result: BatchResult, positions: Mapping[Partition, ReadPosition], member: object, writer: TransactionalProducer
    ) -> None:
        """Write it in a transaction that stays open: steps 1 to 3 of the module's docstring; raises TransactionFailed.

        Args:
          positions: where reading goes on after these letters.
          member: proof that the reader is still in its group.
        """
        writer.begin()
        if result.anywhere:
            letters = sum([count_entries(row["key"]) for row in result.anywhere])
            result.entries[self._home.choose(letters)] += result.anywhere
            result.anywhere.clear()
        for shard, entries_of_shard in result.entries.items():
            writer.write(self._names.changelog, shard, entries_of_shard)
            # Copied by now, and still at hand: to touch it later, only to let it go, costs far more.
            entries_of_shard.clear()
        # In one partition: every partition that a transaction touches costs the brokers more than a hundred records.
        draw = zlib.crc32(result.outcomes[0]["value"]) if result.outcomes else 0
        writer.write(self._names.outcomes, draw % self._partitions[self._names.outcomes], result.outcomes)
        result.outcomes.clear()
        for team, lineages in result.lineages.items():
            writer.write(self._names.lineage, self._lineage_topic.find_partition(team), lineages)
        result.lineages.clear()
        writer.write(self._names.positions, read_positions.PARTITION, read_positions.encode_positions(positions))
        writer.read_to(read_positions.build_group_offsets(positions), member)

    def _find_spread(self, team: str, target: str) -> int | None:
        # Each worker has the part of a limit that its shards are of all: what is limited must wait in all of them.
        return self._shards if self._registry.has_rate_limit(team, target) else None

    def _shard(self, letter: Letter) -> int:
        # All letters of one key wait in one shard, so that their order can be kept; those without a key are spread.
        return zlib.crc32(letter.source if letter.key is None else letter.key) % self._shards
