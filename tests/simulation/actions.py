"""What is promised of actions, held against every commit.

| problem | meaning |
| --- | --- |
| torn | a slice ended, or a letter was acted on, without the tally that counts it, or its outcome; or the other way round |
| wrong | an outcome tells of another due time, or another target, than the letter was given |
| twice | a letter was acted on twice by one action, or counted twice |
| unasked | acted on though nobody asked for it, by another edit than that of this very letter, or by another policy file |
| kept | a letter was changed, and is not kept as it was; or kept and not changed; or erased, and something of it is left |
| stuck | not all members are counted though nothing goes wrong any more |
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson

from retry.dead_letters import retry_headers as names
from retry.delay_queue import action_records, entry_keys, returned_offsets
from retry.delay_queue.action_records import SLICE, Action, Member, Order, Tally
from retry.delay_queue.envelope_codec import PLAIN
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.ramp_records import SENDING
from retry.delay_queue.returned_offsets import RETURNED, ParkedPlace, hash_topic_id
from retry.delivery.act import INCOMPLETE
from retry.delivery.act_records import DONE
from retry.delivery.acted_entry import SUPERSEDED, hash_envelope
from retry.delivery.returned_letter import record_digest
from retry.delivery.slice_members import goes_by
from retry.kafka.topics import TopicNames
from retry.testing.kafka import MemoryRecord, Transaction
from tests.simulation import acted_outcomes
from tests.simulation.identity import Identities, coordinates
from tests.simulation.keys import OBSERVER
from tests.simulation.plan import APP
from tests.simulation.ramps import Ramps, Row
from tests.simulation.violation import SharedCoordinates, Violation, want

_CHANGES = (action_records.EDIT, action_records.PATCH)
# So many letters with the same coordinates may be due at the same time; each gets a millisecond of its own.
_TOGETHER_MAX = 10


@dataclass(slots=True)
class Asked:
    """An action, and what has become of it.

    Attributes:
      told: its letters by shard, coordinates and when they were due: in different lanes these may be the same.
      accepted: policy files that operators let it go on by.
    """

    head: Action
    members: dict[str, Member]
    told: dict[tuple[int, str, int], list[str]]
    complete: bool
    cancelled: bool = False
    accepted: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    counted: Counter[str] = field(default_factory=Counter)
    tallies: dict[int, Tally] = field(default_factory=dict)


@dataclass
class Actions:
    """Every action, by its id.

    Attributes:
      who, whose: see `tests.simulation.ledger.Ledger`.
      started: those whose head was written, whole or not.
      discarded_by: letters that each discard has put where they are discarded.
      parked, discarded: letters to which that happened last.
      redirected: where letters go instead of where their policy says.
      reschedules: whether it was asked to reschedule what was acted on, too.
      values: what letters were changed to.
      resting: letters by where they are parked or discarded, and `records` what lies there.
      returned: places from which letters were returned, or will never be, as they were erased there.
      erased: letters of which nothing is to be left.
      judged_by: the policy files that the transaction at hand may have gone by.
      happened: for how many letters what was done, or not, and how often workers held an action.
    """

    own: TopicNames
    who: Identities
    whose: dict[tuple[int, bytes], str]
    started: dict[bytes, Asked] = field(default_factory=dict)
    discarded_by: dict[bytes, set[str]] = field(default_factory=dict)
    parked: set[str] = field(default_factory=set)
    discarded: set[str] = field(default_factory=set)
    redirected: dict[str, str] = field(default_factory=dict)
    reschedules: bool = False
    values: dict[str, bytes | None] = field(default_factory=dict)
    resting: dict[bytes, str] = field(default_factory=dict)
    records: dict[bytes, MemoryRecord] = field(default_factory=dict)
    returned: set[bytes] = field(default_factory=set)
    erased: set[str] = field(default_factory=set)
    judged_by: set[str] = field(default_factory=set)
    happened: Counter[str] = field(default_factory=Counter)
    ramps: Ramps = field(init=False)

    def __post_init__(self) -> None:
        self.ramps = Ramps(self.own)

    def asked(self, action: bytes, head: Action, members: dict[int, list[Member]], *, complete: bool,
              steps: dict[tuple[int, bytes], int] | None = None) -> None:  # fmt: skip
        """An operator asks for it; of a ramp with the step of each member, by its shard and key."""
        of = {(shard, member.key): member for shard, some in members.items() for member in some}
        by_letter = {self._whose(*place): member for place, member in of.items()}
        told: dict[tuple[int, str, int], list[str]] = {}
        for shard, key in of:
            if not returned_offsets.is_place(key):
                told.setdefault((shard, coordinates(key), entry_keys.due_at_ms(key)), []).append(self._whose(shard, key))
        self.started[action] = Asked(head, by_letter, told, complete)
        self.ramps.asked(action, head, {self._whose(*place): step for place, step in (steps or {}).items()})

    def _whose(self, shard: int, key: bytes) -> str:
        return self.resting[key] if returned_offsets.is_place(key) else self.whose.get((shard, key), coordinates(key))

    def committed(
        self, transaction: Transaction, before: dict[tuple[int, bytes], bytes], shards: dict[int, list[Row]]
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
        told = acted_outcomes.of_actions(transaction.records, self.own.outcomes)
        tallies = [r for r in changelog if (r.key() or b"").endswith(b"/tally") and r.value() is not None]
        slices = [r for r in changelog if (r.key() or b"")[:1] == SLICE]
        self._orders(changelog, of_worker=of_worker)
        if not of_worker:
            return set()
        self.ramps.committed(changelog, shards)
        if not tallies:
            known = [r for r in slices if action_records.find_action_id(r.key() or b"") in self.started]
            want(not known, "torn", "a slice ended and nothing was counted")
            want(not audit and not kept and not told, "torn", "an audit, outcome or former letter, and nothing was counted")
            return set()
        (tally,) = tallies
        acted_outcomes.check(told, changelog, self.who)
        return self._counted(tally, slices, changelog, kept, audit, before)

    def _orders(self, changelog: list[MemoryRecord], *, of_worker: bool) -> None:
        for record in changelog:
            key, value = record.key() or b"", record.value()
            if of_worker and value is not None and key.startswith(b"\x10action/") and key.endswith(b"/held"):
                self._held(msgspec.json.decode(value, type=Order))
            if value is not None and key.startswith(b"\x10action/") and key.endswith(b"/resumed"):
                asked = self.started[bytes.fromhex(key.split(b"/")[1].decode())]
                asked.accepted.add(msgspec.json.decode(value, type=Order).policies)
            if key.startswith(b"\x10action/") and key.endswith(b"/cancelled") and record.value() is not None:
                self.started[bytes.fromhex(key.split(b"/")[1].decode())].cancelled = True

    def _held(self, order: Order) -> None:
        what = "held as incomplete" if order.reason == INCOMPLETE else "held for its policies" if order.policies else "held"
        self.happened[f"{what}, by a worker"] += 1

    def _counted(
        self, record: MemoryRecord, slices: list[MemoryRecord], changelog: list[MemoryRecord], kept: list[MemoryRecord],
        audit: list[MemoryRecord], before: dict[tuple[int, bytes], bytes],
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
        letters = [self.who.of_entry(put.key() or b"", put.value() or b"") for put in puts]
        results = [each for told in audit for each in orjson.loads(told.value() or b"")["letters"]]
        marked = [each["parked"] for each in results if each["result"] == DONE and "letter" not in each]
        want(tally.done - was.done == len(letters) + len(marked), "torn", f"{letters} acted on, {was} became {tally}")
        bitmaps = {r.key() or b"": r.value() for r in changelog if (r.key() or b"")[:1] == RETURNED}
        want(not marked or asked.head.kind == action_records.ERASE, "unasked", f"{marked} by {action.hex()}")
        for told in marked:
            self._marked(_place(told), bitmaps)
        self._tell_apart(asked, shard, before)
        for letter, put in zip(letters, puts, strict=True):
            want(letter in asked.members, "unasked", f"{letter} by {action.hex()}")
            if returned_offsets.is_place(asked.members[letter].key):
                self._back(asked, letter, put, bitmaps)
            else:
                self._done(action, asked, letter, put, before.get((shard, asked.members[letter].key)))
        by = {asked.head.policies, *asked.accepted} & self.judged_by
        want(not letters or not goes_by(asked.head) or bool(by), "unasked", f"{letters} by the policies {self.judged_by}")
        asked.done |= set(letters)
        back = {letter for letter in letters if returned_offsets.is_place(asked.members[letter].key)}
        done = f"{asked.head.kind} done"
        self.happened.update({done: len(letters) - len(back), f"{done}, returned": len(back)})
        self.happened.update("nothing done: " + each["result"] for each in results if each["result"] != DONE)
        # What is patched on its way back stays where it rested.
        changed = sorted(set(letters) - (back if asked.head.kind == action_records.PATCH else set()))
        changed = changed if asked.head.kind in _CHANGES else []
        want(sorted(self.who.of_record(each) for each in kept) == sorted(changed), "kept", f"{changed} changed, {len(kept)} kept")
        want(len(results) == tally.members - was.members, "torn", f"{len(results)} audited, {was} became {tally}")
        for each in results:
            asked.counted[self._told(asked, shard, each)] += 1
        asked.tallies[shard] = tally
        for letter, times in asked.counted.items():
            want(times == 1 and letter in asked.members, "twice", f"{letter} was counted {times} times by {action.hex()}")
        return back

    def _tell_apart(self, asked: Asked, shard: int, before: dict[tuple[int, bytes], bytes]) -> None:
        asked_letters = {member.key: letter for letter, member in asked.members.items()}
        for (of_shard, key), envelope in before.items():
            if of_shard == shard and key in asked_letters and asked_letters[key] != (found := self.who.of_entry(key, envelope)):
                alike = found.split(" of before")[0] == asked_letters[key].split(" of before")[0]
                want(alike, "unasked", f"{found} was acted on in place of {asked_letters[key]}")
                raise SharedCoordinates

    def _told(self, asked: Asked, shard: int, result: dict[str, Any]) -> str:
        if "parked" in result:
            return self.resting[_place(result["parked"])]
        letters = asked.told[shard, result["letter"], result["due_ms"]]
        return next((letter for letter in letters if not asked.counted[letter]), letters[0])

    def _marked(self, key: bytes, bitmaps: dict[bytes, bytes | None]) -> None:
        """Note that a letter was returned from there, or erased: neither comes behind the other."""
        letter, place = self.resting[key], returned_offsets.decode_place(key)
        want(key not in self.returned, "twice", f"{letter} was returned twice from where it was parked")
        byte = (bitmaps.get(place.block()) or bytes(1_025))[1 + place.offset % 8_192 // 8]
        want(byte >> place.offset % 8 & 1 == 1, "torn", f"{letter} was returned and is not marked")
        self.returned.add(key)

    def _back(self, asked: Asked, letter: str, put: MemoryRecord, bitmaps: dict[bytes, bytes | None]) -> None:
        member, entry = asked.members[letter], _entry(put)
        self._marked(member.key, bitmaps)
        if asked.head.kind == action_records.EDIT:
            was = record_digest(self.records[member.key], PLAIN)
            want(was == member.digest, "unasked", f"{letter} is not what its edit was made of")
            edited = OBSERVER.decode(put.key() or b"", member.envelope)
            want(entry.value == edited.value, "unasked", f"{letter} is {entry.value!r}, not the edit")
        self.parked -= {letter}
        self.discarded -= {letter}
        if asked.head.kind == action_records.ERASE:
            self._erased(letter, put)
        elif asked.head.kind == action_records.DISCARD:
            self.discarded.add(letter)
        self.redirected.pop(letter, None)
        self._redirected(asked, letter)
        self.values[letter] = _entry(put).value

    def _done(self, action: bytes, asked: Asked, letter: str, put: MemoryRecord, was: bytes | None) -> None:
        want(letter not in asked.done, "twice", f"{letter} was acted on twice by {action.hex()}")
        member, entry, kind = asked.members[letter], _entry(put), asked.head.kind
        marks = [value for name, value in entry.headers if name == names.ACTION]
        want(marks == [self.ramps.mark(action, letter)], "torn", f"{letter} is marked {marks} by {action.hex()}")
        want(was is not None, "unasked", f"{letter} did not wait under the key that was meant")
        if kind == action_records.EDIT:
            want(hash_envelope(was or b"") == member.digest, "unasked", f"{letter} had changed since its edit was made")
            self.values[letter] = OBSERVER.decode(member.key, member.envelope).value
            want(entry.value == self.values[letter], "unasked", f"{letter} is {entry.value!r}, not the edit")
        if kind == action_records.RETRY:
            due_at_ms = entry_keys.due_at_ms(put.key() or b"")
            want(0 <= due_at_ms - member.due_at_ms <= _TOGETHER_MAX, "unasked", f"{letter} is due at another time than asked for")
        self.parked -= {letter}
        self.discarded -= {letter}
        self._redirected(asked, letter)
        if kind == action_records.PARK:
            self.parked.add(letter)
        elif kind == action_records.ERASE:
            self._erased(letter, put)
        elif kind == action_records.DISCARD:
            self.discarded.add(letter)
            self.discarded_by.setdefault(action, set()).add(letter)

    def _redirected(self, asked: Asked, letter: str) -> None:
        if asked.head.kind == action_records.REDIRECT and asked.head.target:
            self.redirected[letter] = asked.head.target

    def rescheduled(self, letter: str, put: bytes, envelope: bytes) -> None:
        """Note that a letter was moved by no action: where that was asked for, it goes where its policy says again."""
        if put[: entry_keys.LANE_BYTES] in entry_keys.HELD_LANES:
            # It was only put aside, since it cannot be opened: what it shows may be what somebody has put in its place.
            return
        if self.reschedules and OBSERVER.decode_to_show(put, envelope).destination != self.redirected.get(letter):
            self.redirected.pop(letter, None)

    def _erased(self, letter: str, put: MemoryRecord) -> None:
        entry = _entry(put)
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


def _entry(put: MemoryRecord) -> Entry:
    return OBSERVER.decode(put.key() or b"", put.value() or b"")


def _place(told: str) -> bytes:
    topic, partition, offset = told.split("/")
    return ParkedPlace(hash_topic_id(topic), int(partition), int(offset)).encode()


def is_kept(record: MemoryRecord, own: TopicNames) -> bool:
    """Whether it is a letter as it was before it was changed."""
    return record.topic() == own.discarded and (names.ACTION_BEFORE, SUPERSEDED.encode()) in (record.headers() or [])


