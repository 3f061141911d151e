"""What is promised, held against every commit the moment that it is decided.

| problem | meaning |
| --- | --- |
| lost | an offset was committed beyond a letter that was not taken in |
| duplicate | a letter was taken in twice, came back to life, or was sent again |
| replaced | another letter has the key of one that waits |
| torn | a delivery without its delete, a delete without its delivery, or a letter taken in without its offset |
| early | written before it was due, by the clock of whoever wrote it, or by more than it may be wrong; seen or not |
| phantom | a record that goes back to no letter |
| wrong | sent to another topic, under another attempt, or changed |
| uncancelled | sent though a null of its key had been followed, or cancelled without one |
| disordered | taken in behind an earlier batch of letters of the same worker, and lies in front of it |
| overtaken | sent before an earlier letter of its key that waited, too |
| stuck | not done though nothing goes wrong any more |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from retry.dead_letters import retry_headers as names
from retry.delay_queue import entry_keys
from retry.delay_queue.entry_keys import CANCEL, NULLS, ORDERED
from retry.delay_queue.table.changelog_records import OF_ACTIONS
from retry.delay_queue.table.interface import CONTROL
from retry.delivery.acted_entry import BY_OPERATOR
from retry.delivery.park_refused import REFUSED
from retry.kafka.broker_clock import TOLERANCE_MS
from retry.kafka.topics import TopicNames
from retry.telemetry import outcomes
from retry.testing.kafka import MemoryRecord, Transaction
from tests.simulation import blocks
from tests.simulation.actions import Actions, is_kept
from tests.simulation.identity import Identities, coordinates
from tests.simulation.names import Schedules
from tests.simulation.plan import APP, CHAINED, MAX_ATTEMPTS
from tests.simulation.ramps import Row
from tests.simulation.violation import Violation, want

__all__ = ["Ledger", "Letter", "Row", "Violation", "header", "retry_of"]


_PARKED = dict.fromkeys(("orders.DLT", *CHAINED), "shop.parked")
# A shard, and a key in it.
Place = tuple[int, bytes]


@dataclass(slots=True)
class Letter:
    """A dead letter and where it is: `key` of its entry while it waits, `done` when it was sent.

    It is `from_afar` once rescheduling has moved it to another shard.
    `made` are the retries that it says of itself where it is parked or discarded; once `returned`, policies do not park it;
    `ramped` is the action and the step that had put one that failed again, its lineage and its team.
    """

    record: MemoryRecord
    number: int
    key: bytes | None = None
    shard: int = 0
    done: bool = False
    returned: bool = False
    from_afar: bool = False
    made: int = 0
    ramped: tuple[bytes, int, int, int] | None = None

    @property
    def place(self) -> tuple[str, int]:
        """The topic and the partition that it lies in."""
        return self.record.topic(), self.record.partition()

    def waits_at(self, place: Place) -> bool:
        """Whether it waits there, or did last."""
        return (self.shard, self.key) == place

    def ends(self, other: Letter) -> bool:
        """Whether this is a null that cancels the other, if that waits."""
        mine, theirs = self.record, other.record
        return mine.value() is None and mine.key() == theirs.key() and mine.offset() > theirs.offset()


@dataclass
class Ledger:
    """Every letter, by what it is called.

    Attributes:
      who: tells letters apart.
      whose: by shard and key, which letter waits there, or did last.
      changelog: committed rows of each shard, compacted never.
      left: how many letters are not done.
      cancelled: how many were parked because of a null.
      moved_away: how often a letter was moved to another shard.
      refused: how many were parked because their topic refused them; `may_be_refused` says whether that was so.
      sealed: whether every entry has to be; `held`: how often one was moved out of the way that could not be opened.
      blocks_put, blocks_exploded: how many were written, and how many ended with entries that stay.
      schedules: messages to an entry source, which have a ledger of their own.
      actions: of operators, which have one, too.
    """

    own: TopicNames
    who: Identities = field(default_factory=Identities)
    letters: dict[str, Letter] = field(default_factory=dict)
    whose: dict[Place, str] = field(default_factory=dict)
    changelog: dict[int, list[Row]] = field(default_factory=dict)
    sent: set[tuple[bytes | None, bytes | None]] = field(default_factory=set)
    left: int = 0
    cancelled: int = 0
    refused: int = 0
    moved_away: int = 0
    may_be_refused: Callable[[MemoryRecord], bool] = lambda _: False
    sealed: bool = False
    held: int = 0
    blocks_put: int = 0
    blocks_exploded: int = 0
    schedules: Schedules = field(default_factory=Schedules)
    actions: Actions = field(init=False)
    _read: dict[tuple[str, int], int] = field(default_factory=dict)
    _by_partition: dict[tuple[str, int], list[Letter]] = field(default_factory=dict)
    # By shard and worker, where the last of what it has taken in lies.
    _last: dict[tuple[int, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.actions = Actions(self.own, self.who, self.whose)

    def written(self, record: MemoryRecord, number: int) -> Letter:
        """A letter was written; `number` says how often it has failed with this."""
        letter = Letter(record, number)
        self.letters[f"{record.topic()}/{record.partition()}/{record.offset()}"] = letter
        self._by_partition.setdefault(letter.place, []).append(letter)
        self.left += 1
        return letter

    def rests(self, name: str, record: MemoryRecord, made: int) -> None:
        """A letter rests after so many retries, and what it was is no more."""
        self.letters[name] = Letter(record, made + 1, done=True, made=made)

    def appended(self, record: MemoryRecord, clock_ms: int, brokers_ms: int) -> None:
        """A worker wrote a record to a topic of others, by this clock; nobody knows yet whether it counts."""
        due = int(_header(record, names.DUE_MS) or b"0")
        want(clock_ms >= due, "early", f"{_text(record)} by {due - clock_ms} ms")
        want(brokers_ms >= due - TOLERANCE_MS, "early", f"{_text(record)} by {due - brokers_ms} ms of the brokers' clock")

    def committed(self, transaction: Transaction) -> None:
        """A transaction was decided, and will be seen."""
        seen = blocks.by_entry(transaction, self.own.changelog, self.changelog)
        transaction = seen.transaction
        self._note_again(seen.again)
        self.blocks_put, self.blocks_exploded = self.blocks_put + seen.put, self.blocks_exploded + seen.exploded
        puts: dict[Place, bytes] = {}
        nulls: list[Place] = []
        deliveries: dict[str, MemoryRecord] = {}
        told: list[str] = []
        self._in_order(transaction)
        named = [record for record in transaction.records if self.schedules.takes(record, self.own.changelog)]
        self.schedules.committed(transaction, named)
        back = self.actions.committed(transaction, self._nulled(transaction), self.changelog)
        for record in transaction.records:
            topic, key, value = record.topic(), record.key() or b"", record.value()
            place = record.partition(), key
            if topic == self.own.changelog:
                self.changelog.setdefault(record.partition(), []).append((record.offset(), key, value))
                self._look_at(key, value)
                if key[:1] == CONTROL or key[:1] in OF_ACTIONS or record in named:
                    continue
                if value is None:
                    nulls.append(place)
                else:
                    want(place not in puts, "duplicate", f"{coordinates(key)} put twice at once")
                    puts[place] = value
            elif topic == self.own.outcomes:
                # Those of actions are looked at with these.
                told += [letter["source"] for letter in outcomes.read(value or b"") if letter["action"] is None]
            elif topic in (self.own.lineage, self.own.audit, self.own.positions) or record in named or is_kept(record, self.own):
                continue
            elif topic not in {t for t, _ in self._by_partition}:
                source = self.who.of_record(record)
                want(source not in deliveries, "duplicate", f"{source} sent twice at once")
                deliveries[source] = record
        taken = self._put(puts, set(nulls), back)
        if not any(record.topic() == self.own.audit for record in transaction.records):
            for (_, key), envelope in puts.items():
                self.actions.rescheduled(self.who.of_entry(key, envelope), key, envelope)
        self.actions.ramps.taken_in(transaction, [self.letters[source].ramped for source in taken])
        self._delete(nulls, puts, deliveries)
        want(not deliveries, "torn", f"sent and not deleted: {', '.join(deliveries)}")
        self._position(transaction, taken)
        want(sorted(told) == sorted(taken), "torn", f"letters {taken}, outcomes {told}")

    def _look_at(self, key: bytes, value: bytes | None) -> None:
        """Whether what an entry holds can be read."""
        if value is None or not entry_keys.FIRST_KEY <= key < entry_keys.END_KEY or key.startswith(CANCEL):
            return
        self.held += entry_keys.is_held(key)
        want(not self.sealed or value[1:2] == b"\2", "clear", f"{coordinates(key)} was put, and not sealed")

    def waits_at(self) -> dict[str, tuple[Place, bytes]]:
        """List by letter where it waits, and its envelope."""
        at = {}
        for place, source in self.whose.items():
            letter = self.letters[source]
            rows = [row for row in self.changelog.get(place[0], []) if row[1] == place[1]]
            if letter.waits_at(place) and not letter.done and rows and (envelope := max(rows)[2]) is not None:
                at[source] = place, envelope
        return at

    def _note_again(self, rows: list[tuple[int, Row]]) -> None:
        for shard, row in rows:
            self.changelog.setdefault(shard, []).append(row)

    def _in_order(self, transaction: Transaction) -> None:
        """Letters lie behind those that the same worker took in before: order and cancels go by that."""
        worker = transaction.id.removesuffix(":1")
        for record in transaction.records if worker.startswith(f"{APP}-intake-") else ():
            if record.topic() == self.own.changelog:
                last = self._last.get((record.partition(), worker), -1)
                want(last <= record.offset(), "disordered", f"{_text(record)} lies in front of earlier letters")
                self._last[record.partition(), worker] = record.offset()

    def _nulled(self, transaction: Transaction) -> dict[Place, bytes]:
        """The entries that stood under the keys that a transaction nulls."""
        own = [r for r in transaction.records if r.topic() == self.own.changelog and r.value() is None]
        found: dict[Place, bytes] = {}
        for shard, key in dict.fromkeys((r.partition(), r.key() or b"") for r in own):
            rows = [value for _, of, value in sorted(self.changelog.get(shard, []), key=lambda row: row[0]) if of == key]
            if rows and rows[-1] is not None:
                found[shard, key] = rows[-1]
        return found

    def _letter(self, source: str, what: str) -> Letter:
        letter = self.letters.get(source)
        if letter is None:
            raise Violation(f"phantom: {what} of {source}")
        return letter

    def _put(self, puts: dict[Place, bytes], nulls: set[Place], back: set[str]) -> list[str]:
        """Which letters were taken in; the others moved."""
        taken = []
        for (shard, key), envelope in puts.items():
            source = self.who.of_entry(key, envelope)
            letter = self._letter(source, "entry")
            former = self.whose.get((shard, key), source)
            waits = former != source and self.letters[former].waits_at((shard, key)) and not self.letters[former].done
            want(not waits, "replaced", f"{former} by {source}")
            self.whose[shard, key] = source
            if source in back:
                want(letter.done, "duplicate", f"{source} was returned, and is not parked")
                letter.key, letter.done, letter.returned, self.left = key, False, True, self.left + 1
                letter.shard = shard
                letter.number = max(letter.made, MAX_ATTEMPTS) + 1
                continue
            want(not letter.done, "duplicate", f"{source} came back to life")
            if letter.key is None:
                taken.append(source)
                letter.shard, letter.key = shard, key
            else:
                moves = (letter.shard, letter.key) in nulls and not letter.waits_at((shard, key))
                want(moves, "duplicate", f"{source} was taken in twice")
                letter.from_afar |= shard != letter.shard
                self.moved_away += shard != letter.shard
        return taken

    def _delete(self, nulls: list[Place], puts: dict[Place, bytes], deliveries: dict[str, MemoryRecord]) -> None:
        moved = {self.whose[place]: place for place in puts}
        for place in nulls:
            source = self.whose.get(place, coordinates(place[1]))
            letter = self._letter(source, "delete")
            want(not letter.done, "duplicate", f"{source} was deleted already")
            want(letter.waits_at(place), "torn", f"{source} does not wait under the key that was deleted")
            record = deliveries.pop(source, None)
            if record is None:
                want(source in moved, "torn", f"{source} was deleted and not sent")
                letter.shard, letter.key = moved[source]
            else:
                self._deliver(source, letter, record)

    def _deliver(self, source: str, letter: Letter, record: MemoryRecord) -> None:
        if source in self.actions.erased:
            letter.done, self.left = True, self.left - 1
            about = record.topic(), record.key(), record.value()
            want(about == (self.own.discarded, None, None), "kept", f"{source} was erased, and is {about}")
            return
        lineage = _header(record, names.ID), _header(record, names.ATTEMPT)
        reason = self._cancelled(source, letter, _header(record, names.PARKED_REASON))
        if reason == BY_OPERATOR.encode():
            want(source in self.actions.parked, "unasked", f"{source} was parked, and nobody asked for that")
        parked = reason is not None or (letter.number > MAX_ATTEMPTS and not letter.returned)
        letter.made = int(lineage[1] or b"0")
        # A null that came meanwhile cancels it, so that an undo cannot bring it back.
        if source in self.actions.discarded and reason != b"cancelled":
            letter.done, self.left = True, self.left - 1
            want(record.topic() == self.own.discarded, "wrong", f"{source} was to be discarded, and went to {record.topic()}")
            return
        to = _PARKED.get(letter.place[0], self.own.parked) if parked else retry_of(letter.place[0])
        to = to if parked else self.actions.redirected.get(source, to)
        want(record.topic() == to, "wrong", f"{source}, failure {letter.number}, went to {record.topic()}, not {to}")
        want(lineage[1] == b"%d" % (letter.number - parked), "wrong", f"{source}, failure {letter.number}, is {lineage}")
        value = self.actions.values.get(source, letter.record.value())
        want((record.key(), record.value()) == (letter.record.key(), value), "wrong", f"{source} was changed")
        want(parked or lineage not in self.sent, "duplicate", f"{source}: {lineage} was sent before")
        if not parked:
            self.sent.add(lineage)
        if letter.key is not None and letter.key[0] == ORDERED:
            for other in self._by_partition[letter.place]:
                if other.record.offset() >= letter.record.offset():
                    break
                waits = other.key is not None and not other.done and other.key[0] == ORDERED
                # One that came from another shard is in the queue once the owner of the queue has read of it.
                free = not waits or other.returned or other.from_afar or other.record.key() != letter.record.key()
                want(free, "overtaken", f"{_text(other.record)} by {source}")
        letter.done = True
        self.left -= 1

    def _cancelled(self, source: str, letter: Letter, reason: bytes | None) -> bytes | None:
        """Why it was parked, where a null is the reason: it is one, or one came after it under its key."""
        if letter.record.value() is None:
            want(reason == b"null_value", "uncancelled", f"{source}, a null, went with the reason {reason!r}")
            return reason
        nulls = [each for each in self._by_partition.get(letter.place, []) if each.ends(letter)]
        if reason == b"cancelled":
            want(any(null.key is not None for null in nulls), "uncancelled", f"{source} was cancelled by nobody")
            self.cancelled += 1
            return reason
        followed = [_text(null.record) for null in nulls if null.key is not None and not null.key.startswith(NULLS)]
        if reason == REFUSED.encode():
            want(self.may_be_refused(letter.record), "unasked", f"{source} was parked as refused, and no topic refuses it")
            self.refused += 1
            return reason
        if reason == BY_OPERATOR.encode() or letter.returned:
            return reason
        want(not followed or reason is not None, "uncancelled", f"{source} was sent after {followed} had cancelled it")
        return None

    def copied(self, shard: int, rows: list[tuple[int, bytes, bytes | None]]) -> None:
        """A partition of the changelog was copied: its records have other offsets now."""
        self.changelog[shard] = blocks.rows_by_entry(rows)
        self._read.pop((self.own.changelog, shard), None)
        self._last = {at: offset for at, offset in self._last.items() if at[0] != shard}

    def _position(self, transaction: Transaction, taken: list[str]) -> None:
        expected = []
        for (_, topic, partition), committed in transaction.positions.items():
            offset = committed.offset or 0
            before = self._read.get((topic, partition), 0)
            of_partition = self._by_partition.get((topic, partition), [])
            expected += [_text(x.record) for x in of_partition if before <= x.record.offset() < offset]
            want(offset >= before, "torn", f"{topic}/{partition} went back from {before} to {offset}")
            self._read[topic, partition] = offset
        if missing := set(expected) - set(taken):
            raise Violation(f"lost: {', '.join(sorted(missing))}")
        want(len(expected) == len(taken), "torn", f"taken without their offsets: {sorted(set(taken) - set(expected))}")

    def waiting(self) -> list[str]:
        """Letters that are not done."""
        return [source for source, letter in self.letters.items() if not letter.done]

    def due_ms(self) -> list[int]:
        """When those that wait are due."""
        letters = [entry_keys.due_at_ms(letter.key) for letter in self.letters.values() if letter.key and not letter.done]
        return letters + self.schedules.due_ms()

    def size(self) -> int:
        """How much is left to happen."""
        return self.left + len(self.schedules.left()) + len(self.actions.left())


def retry_of(topic: str) -> str:
    """Name the topic in which letters of a dead-letter topic come back."""
    return "orders.retry" if topic in CHAINED else topic.removesuffix(".DLT") + ".retry"


def _text(record: MemoryRecord) -> str:
    return f"{record.topic()}/{record.partition()}/{record.offset()}"


def _header(record: Any, name: str) -> bytes | None:
    return next((value for found, value in record.headers() or [] if found == name), None)


header = _header
