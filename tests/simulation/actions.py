"""What is promised of actions, held against every commit.

| problem | meaning |
| --- | --- |
| torn | a slice ended, or a letter was acted on, without the tally that counts it, or the other way round |
| twice | a letter was acted on twice by one action, or counted twice |
| unasked | acted on though nobody asked for it, or another edit than the one of this very letter |
| kept | a letter was changed, and is not kept as it was; or kept and not changed; or erased, and something of it is left |
| stuck | not all members are counted though nothing goes wrong any more |
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgspec
import orjson

from retry.dead_letters import retry_headers as names
from retry.delay_queue import action_records, entry_keys, envelopes, returned_offsets
from retry.delay_queue.action_records import SLICE, Action, Member, Tally
from retry.delay_queue.ramp_records import SENDING
from retry.delay_queue.returned_offsets import RETURNED, ParkedPlace, topic_hash
from retry.delivery.act_audit import DONE
from retry.delivery.acted_entry import SUPERSEDED, digest
from retry.kafka.topics import TopicNames
from retry.testing.kafka import MemoryRecord, Transaction
from tests.simulation.plan import APP
from tests.simulation.ramps import Ramps, Row
from tests.simulation.violation import Violation, want

_CHANGES = (action_records.EDIT, action_records.PATCH)


@dataclass(slots=True)
class Asked:
    """An action, and what has become of it."""

    head: Action
    members: dict[str, Member]
    complete: bool
    cancelled: bool = False
    done: set[str] = field(default_factory=set)
    counted: Counter[str] = field(default_factory=Counter)
    tallies: dict[int, Tally] = field(default_factory=dict)


@dataclass
class Actions:
    """Every action, by its id.

    Attributes:
      started: those whose head was written, whole or not.
      discarded_by: letters that each discard has put where they are discarded.
      parked, discarded: letters to which that happened last.
      values: what letters were changed to.
      resting: letters by where they are parked or discarded.
      returned: places from which letters were returned, or will never be, as they were erased there.
      erased: letters of which nothing is to be left.
    """

    own: TopicNames
    started: dict[bytes, Asked] = field(default_factory=dict)
    discarded_by: dict[bytes, set[str]] = field(default_factory=dict)
    parked: set[str] = field(default_factory=set)
    discarded: set[str] = field(default_factory=set)
    values: dict[str, bytes | None] = field(default_factory=dict)
    resting: dict[bytes, str] = field(default_factory=dict)
    returned: set[bytes] = field(default_factory=set)
    erased: set[str] = field(default_factory=set)
    ramps: Ramps = field(init=False)

    def __post_init__(self) -> None:
        self.ramps = Ramps(self.own)

    def asked(self, action: bytes, head: Action, members: dict[int, list[Member]], *, complete: bool,
              steps: dict[bytes, int] | None = None) -> None:  # fmt: skip
        """An operator asks for it; of a ramp with the step of each member, by its key."""
        by_letter = {self._whose(member.key): member for some in members.values() for member in some}
        self.started[action] = Asked(head, by_letter, complete)
        self.ramps.asked(action, head, {self._whose(key): step for key, step in (steps or {}).items()})

    def _whose(self, key: bytes) -> str:
        return self.resting[key] if returned_offsets.is_place(key) else _letter(key)

    def committed(
        self, transaction: Transaction, before: dict[bytes, bytes], shards: dict[int, list[Row]]
    ) -> set[str]:
        """A transaction was decided; `before` are the entries that waited under the keys that it nulls.

        Args:
          shards: committed rows of each.

        Returns:
          letters that it has returned.
        """
        of_worker = transaction.id.startswith(f"{APP}-sweep")
        changelog = [r for r in transaction.records if r.topic() == self.own.changelog]
        audit = [r for r in transaction.records if r.topic() == self.own.audit]
        kept = [r for r in transaction.records if is_kept(r, self.own)]
        tallies = [r for r in changelog if (r.key() or b"").endswith(b"/tally") and r.value() is not None]
        slices = [r for r in changelog if (r.key() or b"")[:1] == SLICE]
        self._orders(changelog)
        if not of_worker:
            return set()
        self.ramps.committed(changelog, shards)
        if not tallies:
            known = [r for r in slices if action_records.action_of(r.key() or b"") in self.started]
            want(not known, "torn", "a slice ended and nothing was counted")
            want(not audit and not kept, "torn", "an audit, or a former letter, and nothing was counted")
            return set()
        (tally,) = tallies
        return self._counted(tally, slices, changelog, kept, audit, before)

    def _orders(self, changelog: list[MemoryRecord]) -> None:
        for record in changelog:
            key = record.key() or b""
            if key.startswith(b"\x10action/") and key.endswith(b"/cancelled") and record.value() is not None:
                self.started[bytes.fromhex(key.split(b"/")[1].decode())].cancelled = True

    def _counted(
        self, record: MemoryRecord, slices: list[MemoryRecord], changelog: list[MemoryRecord], kept: list[MemoryRecord],
        audit: list[MemoryRecord], before: dict[bytes, bytes],
    ) -> set[str]:  # fmt: skip
        action = bytes.fromhex((record.key() or b"").split(b"/")[1].decode())
        asked, shard = self.started[action], record.partition()
        tally, was = msgspec.json.decode(record.value() or b"", type=Tally), asked.tallies.get(shard, Tally())
        ended = sum(each.value() is None for each in slices)
        sent = any((r.key() or b"")[:1] == SENDING and r.value() is None for r in changelog)
        if (asked.complete or not asked.cancelled) and not sent:
            want(bool(slices), "torn", "counted, and no slice ended")
            want(tally.slices == was.slices + ended, "torn", f"{ended} slices ended, counted from {was.slices} to {tally.slices}")
        puts = [r for r in changelog if entry_keys.FIRST_KEY <= (r.key() or b"") < entry_keys.END_KEY and r.value() is not None]
        letters = [_letter(put.key() or b"") for put in puts]
        results = [each for told in audit for each in orjson.loads(told.value() or b"")["letters"]]
        marked = [each["parked"] for each in results if each["result"] == DONE and "letter" not in each]
        want(tally.done - was.done == len(letters) + len(marked), "torn", f"{letters} acted on, {was} became {tally}")
        bitmaps = {r.key() or b"": r.value() for r in changelog if (r.key() or b"")[:1] == RETURNED}
        want(not marked or asked.head.kind == action_records.ERASE, "unasked", f"{marked} by {action.hex()}")
        for told in marked:
            self._marked(_place(told), bitmaps)
        for letter, put in zip(letters, puts, strict=True):
            want(letter in asked.members, "unasked", f"{letter} by {action.hex()}")
            if returned_offsets.is_place(asked.members[letter].key):
                self._back(asked, letter, put, bitmaps)
            else:
                self._done(action, asked, letter, put, before)
        asked.done |= set(letters)
        back = {letter for letter in letters if returned_offsets.is_place(asked.members[letter].key)}
        changed = sorted(set(letters) - back) if asked.head.kind in _CHANGES else []
        want(sorted(_source(each) for each in kept) == sorted(changed), "kept", f"{changed} changed, {len(kept)} kept")
        want(len(results) == tally.members - was.members, "torn", f"{len(results)} audited, {was} became {tally}")
        asked.counted.update(each.get("letter") or self._resting_at(each["parked"]) for each in results)
        asked.tallies[shard] = tally
        for letter, times in asked.counted.items():
            want(times == 1 and letter in asked.members, "twice", f"{letter} was counted {times} times by {action.hex()}")
        return back

    def _resting_at(self, told: str) -> str:
        return self.resting[_place(told)]

    def _marked(self, key: bytes, bitmaps: dict[bytes, bytes | None]) -> None:
        """It was returned from there, or erased: neither comes behind the other."""
        letter, place = self.resting[key], returned_offsets.place(key)
        want(key not in self.returned, "twice", f"{letter} was returned twice from where it was parked")
        byte = (bitmaps.get(place.block()) or bytes(1_025))[1 + place.offset % 8_192 // 8]
        want(byte >> place.offset % 8 & 1 == 1, "torn", f"{letter} was returned and is not marked")
        self.returned.add(key)

    def _back(self, asked: Asked, letter: str, put: MemoryRecord, bitmaps: dict[bytes, bytes | None]) -> None:
        self._marked(asked.members[letter].key, bitmaps)
        self.parked -= {letter}
        self.discarded -= {letter}
        if asked.head.kind == action_records.ERASE:
            self._erased(letter, put)
        elif asked.head.kind == action_records.DISCARD:
            self.discarded.add(letter)
        self.values[letter] = envelopes.decode(put.value() or b"").value

    def _done(self, action: bytes, asked: Asked, letter: str, put: MemoryRecord, before: dict[bytes, bytes]) -> None:
        want(letter not in asked.done, "twice", f"{letter} was acted on twice by {action.hex()}")
        member, entry, kind = asked.members[letter], envelopes.decode(put.value() or b""), asked.head.kind
        marks = [value for name, value in entry.headers if name == names.ACTION]
        want(marks == [self.ramps.mark(action, letter)], "torn", f"{letter} is marked {marks} by {action.hex()}")
        was = before.get(member.key)
        want(was is not None, "unasked", f"{letter} did not wait under the key that was meant")
        if kind == action_records.EDIT:
            want(digest(was or b"") == member.digest, "unasked", f"{letter} had changed since its edit was made")
            self.values[letter] = envelopes.decode(member.envelope).value
            want(entry.value == self.values[letter], "unasked", f"{letter} is {entry.value!r}, not the edit")
        if kind == action_records.RETRY:
            due_at_ms = entry_keys.due_at_ms(put.key() or b"")
            want(due_at_ms - member.due_at_ms in (0, 1), "unasked", f"{letter} is due at another time than asked for")
        self.parked -= {letter}
        self.discarded -= {letter}
        if kind == action_records.PARK:
            self.parked.add(letter)
        elif kind == action_records.ERASE:
            self._erased(letter, put)
        elif kind == action_records.DISCARD:
            self.discarded.add(letter)
            self.discarded_by.setdefault(action, set()).add(letter)

    def _erased(self, letter: str, put: MemoryRecord) -> None:
        entry = envelopes.decode(put.value() or b"")
        theirs = [name for name, _ in entry.headers if name not in names.OURS]
        want((entry.key, entry.value, theirs) == (None, None, []), "kept", f"{letter} was erased, and is {entry}")
        self.erased.add(letter)

    def left(self) -> list[str]:
        """Whole actions of which not all members are counted."""
        return [
            f"{action.hex()} {asked.head.kind}: {asked.counted.total()} of {asked.head.members} counted, {asked.tallies}"
            for action, asked in self.started.items()
            if asked.complete and asked.counted.total() != asked.head.members
        ] + [
            f"{action.hex()}: step {self.ramps.opened.get(action)} of {asked.head.ramp}"
            for action, asked in self.started.items()
            if asked.complete and not asked.cancelled and self.ramps.climbs(action)
        ]

    def check_end(self) -> None:
        """Nothing goes wrong any more, and all has come to its end."""
        for action, asked in self.started.items():
            if not asked.complete and (asked.done or asked.tallies) and not asked.cancelled:
                raise Violation(f"unasked: {action.hex()} was begun, and is not whole")


def _place(told: str) -> bytes:
    topic, partition, offset = told.split("/")
    return ParkedPlace(topic_hash(topic), int(partition), int(offset)).encode()


def is_kept(record: MemoryRecord, own: TopicNames) -> bool:
    """Whether it is a letter as it was before it was changed."""
    return record.topic() == own.discarded and (names.ACTION_BEFORE, SUPERSEDED.encode()) in (record.headers() or [])


def _source(record: MemoryRecord) -> str:
    return next((value or b"" for name, value in record.headers() or [] if name == names.SOURCE), b"").decode()


def _letter(key: bytes) -> str:
    where = entry_keys.source(key)
    return f"{where.topic}/{where.partition}/{where.offset}"
