"""Operators who act on single letters: they choose what waits, write slices, and then the head, or end before that.

They draw by themselves, so that a seed without actions goes as if there were none.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

import msgspec

from retry.dead_letters import retry_headers as names
from retry.delay_queue import action_records, entry_keys, envelopes, returned_offsets
from retry.delay_queue.action_records import Action, Member, Order, Patch
from retry.delay_queue.control_records import Pause, encode, pause_key
from retry.delay_queue.entry_keys import NAMED
from retry.delay_queue.ramp_records import Ramp, read_mark
from retry.delay_queue.returned_offsets import ParkedPlace, topic_hash
from retry.delivery.acted_entry import digest
from retry.testing.kafka import MemoryRecord, MemoryTransactionalProducer
from tests.simulation.ledger import header

if TYPE_CHECKING:
    from tests.simulation.world import World

_KINDS = (
    action_records.RETRY, action_records.RETRY, action_records.PARK, action_records.DISCARD, action_records.DISCARD,
    action_records.EDIT, action_records.PATCH, action_records.UNDO, action_records.UNDO, action_records.ERASE,
)  # fmt: skip
_BACK = (action_records.RETRY, action_records.RETRY, action_records.DISCARD, action_records.PATCH, action_records.ERASE)
_LATER_MS = 20_000
_PAUSES = 0.3


class Operators:
    """All of them.

    Attributes:
      left: how many actions they will still ask for.
      patient: they act on what waits for long.
      climbs: for how many turns of all workers they wait for a ramp.
    """

    def __init__(self, world: World, seed: int) -> None:
        self._world, self.random = world, Random(f"actions of {seed}")
        self.left = self.random.choice((0, 0, 3, 8))
        self.climbs = 0
        self.patient = bool(self.left) and self.random.random() < 0.8
        # What was under each key when somebody looked first: edits are made of that.
        self._seen: dict[bytes, bytes] = {}

    def used_up(self) -> bool:
        """Whether the next letter has been retried as often as it may be, so that it rests soon, and may be returned."""
        return bool(self.left) and self.random.random() < 0.4

    def fails_in_ramp(self, retry: MemoryRecord) -> bool:
        """Whether a consumer fails on what a ramp has sent: often, or few ramps would be held."""
        return read_mark(header(retry, names.ACTION)) is not None and self.random.random() < 0.5

    def act(self) -> None:
        """Ask for something, or give an order about what was asked for."""
        random = self.random
        if random.random() < _PAUSES:
            # What is acted on would be sent before its turn comes, for the most part.
            pause = encode(Pause(self._world.now_ms)) if random.random() < 0.8 else None
            self._world.outside.order(pause_key("all", ""), pause)
        if self.left and random.random() < 0.5 and (chosen := self._chosen()):
            self.left -= 1
            self._ask(*chosen)
            if chosen[0] == action_records.UNDO and random.random() < 0.7:
                # Another operator has edited what was there before that was discarded, and comes late.
                self._ask(action_records.EDIT, b"", self._edits_of_former(chosen[2]))
        elif started := sorted(self._world.ledger.actions.started):
            self._order(random.choice(started))

    def _chosen(self) -> tuple[str, bytes, dict[int, list[Member]]] | None:
        """A kind, the action that an undo is about, and members by shard."""
        random, kind, undoes = self.random, self.random.choice(_KINDS), b""
        if random.random() < 0.4 and (resting := self._resting()):
            return random.choice(_BACK), b"", {returned_offsets.SHARD: resting}
        waiting = self._waiting()
        if kind == action_records.UNDO:
            discards = list(self._world.ledger.actions.discarded_by.items())
            if not discards:
                return None
            undoes, letters = discards[-1] if random.random() < 0.5 else random.choice(discards)
            waiting = {n: {k: v for k, v in rows.items() if _letter(k) in letters} for n, rows in waiting.items()}
        members = {n: self._members(kind, rows) for n, rows in waiting.items()}
        if kind == action_records.EDIT:
            one = random.choice([n for n, some in members.items() if some] or [0])
            # Those that have changed meanwhile come first.
            changed = sorted(members.get(one, []), key=lambda member: self._seen[member.key] == waiting[one][member.key])
            members = {one: changed[:1]}
        return (kind, undoes, members) if any(members.values()) else None

    def _members(self, kind: str, rows: dict[bytes, bytes]) -> list[Member]:
        random, now_ms = self.random, self._world.now_ms
        keys = [key for key in sorted(rows) if random.random() < 0.8]
        members = [Member(key, now_ms + random.randint(0, _LATER_MS)) for key in keys]
        if kind != action_records.EDIT:
            return members
        return [
            msgspec.structs.replace(member, digest=digest(self._seen[member.key]), envelope=self._edited(self._seen[member.key]))
            for member in members if member.key[0] != NAMED
        ]  # fmt: skip

    def _edits_of_former(self, undone: dict[int, list[Member]]) -> dict[int, list[Member]]:
        """Edits of letters as they were first seen: an undo brings them back under the same keys, with another header."""
        former: dict[str, bytes] = {}
        for key, envelope in self._seen.items():
            if key[0] != NAMED and envelopes.decode(envelope).destination != self._world.own.discarded:
                former.setdefault(_letter(key), key)
        return {
            number: [
                Member(key, self._world.now_ms, digest(self._seen[key]), self._edited(self._seen[key]))
                for member in members if (key := former.get(_letter(member.key)))
            ] for number, members in undone.items()
        }  # fmt: skip

    def _resting(self) -> list[Member]:
        """Some letters that are parked or discarded, of each the newest record."""
        world, random, newest = self._world, self.random, dict[str, bytes]()
        for topic in (world.own.parked, "shop.parked", world.own.discarded):
            for partition in world.log.topics[topic]:
                for record in partition.read(0, partition.end)[0]:
                    place = ParkedPlace(topic_hash(topic), partition.number, record.offset())
                    newest[(header(record, names.SOURCE) or b"").decode()] = place.encode()
        members = [(letter, Member(key, world.now_ms + random.randint(0, _LATER_MS))) for letter, key in sorted(newest.items())
                   if random.random() < 0.5]  # fmt: skip
        world.ledger.actions.resting |= {member.key: letter for letter, member in members}
        return [member for _, member in members]

    def _edited(self, envelope: bytes) -> bytes:
        entry = envelopes.decode(envelope)
        value = b"edited %d" % self.random.randrange(1 << 30)
        return envelopes.encode(msgspec.structs.replace(entry, value=value))

    def _waiting(self) -> dict[int, dict[bytes, bytes]]:
        """Entries as whoever folds the changelog sees them now, by shard."""
        found: dict[int, dict[bytes, bytes]] = {}
        for number, rows in self._world.ledger.changelog.items():
            fold = {key: value for _, key, value in sorted(rows, key=lambda row: row[0])}
            found[number] = {k: v for k, v in fold.items() if v is not None and entry_keys.FIRST_KEY <= k < entry_keys.END_KEY}
            self._seen = {**found[number], **self._seen}
        return found

    def _ask(self, kind: str, undoes: bytes, members: dict[int, list[Member]]) -> None:
        """Write slices, one transaction each, and the head, unless they end before that."""
        world, random = self._world, self.random
        shards = len(world.log.topics[world.own.changelog])
        action, count = self.random.randbytes(action_records.ACTION_BYTES), [0] * shards
        size = random.choice((1, 2, 500))
        all_of_it = random.random() < 0.9
        ramp, steps = self._ramp(kind, members)
        for number, step, some in self._by_step(members, steps):
            for n in range(0, len(some), size):
                count[number] += 1
                if all_of_it or n:
                    key = action_records.slice_key(action, step, count[number])
                    self._write({number: [(key, action_records.encode_slice(some[n : n + size], world.now_ms))]})
        rests = any(returned_offsets.is_place(member.key) for some in members.values() for member in some)
        which = f"action {kind}" + (" of what rests" if rests else "") + (" in steps" if ramp else "")
        world.fault(which, f"{action.hex()} {count}")
        if random.random() < 0.1:
            world.happened["action without a head"] += 1
            return
        patch = Patch({"patched": "yes"}) if kind == action_records.PATCH else None
        total = sum(map(len, members.values()))
        head = Action(kind, "sim", world.now_ms, count, total, patch=patch, undoes=undoes.hex() or None, parking=self._parking(),
                      ramp=ramp)  # fmt: skip
        world.ledger.actions.asked(action, head, members, complete=all_of_it, steps=steps)
        twice = 1 + (random.random() < 0.2)
        for _ in range(twice):
            self._everywhere(action_records.head_key(action), action_records.encode(head))

    def _ramp(self, kind: str, members: dict[int, list[Member]]) -> tuple[Ramp | None, dict[bytes, int]]:
        """Steps, for some retries, and which member is in which."""
        random, keys = self.random, [member.key for some in members.values() for member in some]
        if kind != action_records.RETRY or random.random() < 0.3:
            return None, {}
        random.shuffle(keys)
        sizes, left = list[int](), len(keys)
        while left:
            sizes.append(min(left, random.choice((1, 2, 4))))
            left -= sizes[-1]
        steps = iter([n for n, step in enumerate(sizes) for _ in range(step)])
        keep, settle_ms, silence_ms = random.choice((0.99, 0.99, 0.5)), random.choice((0, 300)), random.choice((200, 600))
        self.climbs = 8 * len(sizes)
        return Ramp(keep, sizes, settle_ms, silence_ms), {key: next(steps) for key in keys}

    @staticmethod
    def _by_step(members: dict[int, list[Member]], steps: dict[bytes, int]) -> Iterator[tuple[int, int, list[Member]]]:
        for number, some in members.items():
            for step in sorted({steps.get(member.key, 0) for member in some}):
                yield number, step, [member for member in some if steps.get(member.key, 0) == step]

    def _parking(self) -> dict[str, str]:
        own = self._world.own
        return {topic_hash(topic).hex(): topic for topic in (own.parked, "shop.parked", own.discarded)}

    def _order(self, action: bytes) -> None:
        """Hold it, let it go on, or cancel it."""
        world, random = self._world, self.random
        drawn = random.random()
        if drawn < 0.4:
            world.fault("action held", action.hex())
            self._everywhere(action_records.held_key(action), action_records.encode(Order("sim", world.now_ms)))
        elif drawn < 0.8:
            self._resume(action)
        else:
            world.fault("action cancelled", action.hex())
            self._everywhere(action_records.cancelled_key(action), action_records.encode(Order("sim", world.now_ms)))

    def _resume(self, action: bytes) -> None:
        order = Order("sim", self._world.now_ms, hold=self._world.now_ms)
        self._everywhere(action_records.resumed_key(action), action_records.encode(order))

    def mend(self) -> None:
        """What a worker has held goes on."""
        rows = sorted(self._world.ledger.changelog.get(0, []), key=lambda row: row[0])
        fold = {key: value for _, key, value in rows if value is not None}
        for action, asked in sorted(self._world.ledger.actions.started.items()):
            if asked.head.ramp and asked.complete and (value := fold.get(action_records.held_key(action))):
                held = msgspec.json.decode(value, type=Order)
                last = fold.get(action_records.resumed_key(action))
                if last is None or msgspec.json.decode(last, type=Order).hold < held.at_ms:
                    self._world.happened["ramp held, and resumed"] += 1
                    order = Order("sim", self._world.now_ms, hold=held.at_ms)
                    self._everywhere(action_records.resumed_key(action), action_records.encode(order))

    def resume(self) -> None:
        """Nobody asks for anything any more, and all goes on."""
        self.left = 0
        for action in sorted(self._world.ledger.actions.started):
            self._resume(action)

    def _everywhere(self, key: bytes, value: bytes) -> None:
        world = self._world
        self._write({number: [(key, value)] for number in range(len(world.log.topics[world.own.changelog]))})

    def _write(self, rows: dict[int, list[tuple[bytes, bytes]]]) -> None:
        writer = MemoryTransactionalProducer(self._world.log, "sim-actions")
        writer.open()
        writer.begin()
        for number, some in rows.items():
            writer.write(self._world.own.changelog, number, [{"key": key, "value": value} for key, value in some])
        writer.commit()


def _letter(key: bytes) -> str:
    where = entry_keys.source(key)
    return f"{where.topic}/{where.partition}/{where.offset}"
