"""Operators who act on single letters: they choose what waits, write slices, and then the head, or end before that.

They draw by themselves, so that a seed without actions goes as if there were none.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from retry.dead_letters import retry_headers as names
from retry.delay_queue import action_records, entry_keys, envelopes, returned_offsets
from retry.delay_queue.action_records import Action, Member, Order, Patch
from retry.delay_queue.control_records import Pause, encode, pause_key
from retry.delay_queue.entry_keys import NAMED
from retry.delay_queue.envelope_codec import PLAIN
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.ramp_records import Ramp, read_mark
from retry.delay_queue.returned_offsets import ParkedPlace, hash_topic_id
from retry.delivery.acted_entry import hash_envelope
from retry.delivery.returned_letter import record_digest
from retry.operations.act import request
from retry.operations.act.request import DueTimes
from retry.testing.kafka import MemoryRecord, MemoryTransactionalProducer
from tests.simulation import former_letters
from tests.simulation.keys import OBSERVER, opens
from tests.simulation.ledger import header
from tests.simulation.plan import PATIENTLY, SHARDS, SLOW

if TYPE_CHECKING:
    from tests.simulation.world import World

_KINDS = (
    action_records.RETRY, action_records.RETRY, action_records.REDIRECT, action_records.PARK, action_records.DISCARD,
    action_records.DISCARD, action_records.EDIT, action_records.PATCH, action_records.UNDO, action_records.UNDO,
    action_records.ERASE,
)  # fmt: skip
_BACK = (
    action_records.RETRY, action_records.RETRY, action_records.REDIRECT, action_records.DISCARD, action_records.EDIT,
    action_records.PATCH, action_records.ERASE,
)  # fmt: skip
_LATER_MS = 20_000
_PAUSES = 0.3


class Operators:
    """All operators of one run.

    Attributes:
      left: how many actions they will still ask for.
      patient: they act on what waits for long.
      hourly: they return what rests at a full hour, as others do: entries get the same key there.
      climbs: for how many turns of all workers they wait for a ramp.
    """

    def __init__(self, world: World, seed: int) -> None:
        self._world, self.random = world, Random(f"actions of {seed}")
        self.left = self.random.choice((0, 0, 3, 8))
        self.climbs = 0
        self.patient = bool(self.left) and self.random.random() < 0.8
        self.hourly = self.random.random() < 0.4
        if self.left:
            former_letters.put_former_letters(world, self.random)
        # What was under each key of a shard when somebody looked first: edits are made of that.
        self._seen: dict[tuple[int, bytes], bytes] = {}

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
        if self.patient and random.random() < 0.2:
            self._world.fault("policy file changed", "")
            self._world.delay = random.choice(PATIENTLY)
            if random.random() < 0.3:
                self._world.outside.reschedule(acted=True)
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
        if random.random() < (0.8 if self.hourly else 0.4) and (resting := self._resting()):
            kind = random.choice(_BACK)
            members = self._edits_at_rest(resting) if kind == action_records.EDIT else resting
            return kind, b"", {returned_offsets.SHARD: members}
        waiting = self._waiting()
        if self._world.ledger.actions.discarded_by and random.random() < 0.7:
            kind = action_records.UNDO
        if kind == action_records.UNDO:
            discards = list(self._world.ledger.actions.discarded_by.items())
            if not discards:
                return None
            undoes, letters = discards[-1] if random.random() < 0.5 else random.choice(discards)
            whose = self._world.ledger.whose
            waiting = {n: {k: v for k, v in rows.items() if whose.get((n, k)) in letters} for n, rows in waiting.items()}
        members = {n: self._members(kind, n, rows) for n, rows in waiting.items()}
        if kind == action_records.EDIT:
            one = random.choice([n for n, some in members.items() if some] or [0])
            # Those that have changed meanwhile come first.
            changed = sorted(members.get(one, []), key=lambda member: self._seen[one, member.key] == waiting[one][member.key])
            members = {one: changed[:1]}
        return (kind, undoes, members) if any(members.values()) else None

    def _members(self, kind: str, shard: int, rows: dict[bytes, bytes]) -> list[Member]:
        """At one time, or each at another."""
        random, now_ms = self.random, self._world.now_ms
        keys, at_ms = [key for key in sorted(rows) if random.random() < 0.8], now_ms + random.randint(0, _LATER_MS)
        if shard == returned_offsets.SHARD and random.random() < 0.5:
            at_ms = self._hour_ms()
        at_once = random.random() < 0.5
        members = [Member(key, at_ms if at_once else now_ms + random.randint(0, _LATER_MS)) for key in keys]
        if kind != action_records.EDIT:
            return members
        edited = [member for member in members if member.key[0] != NAMED and (shard, member.key) in self._seen]
        return [self._edit(member.key, member.due_at_ms, shard) for member in edited]

    def _edit(self, key: bytes, due_at_ms: int, shard: int) -> Member:
        seen = self._seen[shard, key]
        return Member(key, due_at_ms, hash_envelope(seen), self._edited(key, seen))

    def _edits_of_former(self, undone: dict[int, list[Member]]) -> dict[int, list[Member]]:
        """Edits of letters as they were first seen: an undo brings them back under the same keys, with another header."""
        former: dict[str, bytes] = {}
        whose, now_ms = self._world.ledger.whose, self._world.now_ms
        for (shard, key), envelope in self._seen.items():
            if key[0] != NAMED and envelopes.decode_routing(envelope).destination != self._world.own.discarded:
                former.setdefault(whose[shard, key], key)
        return {
            shard: [self._edit(key, now_ms, shard) for member in members if (key := former.get(whose[shard, member.key]))]
            for shard, members in undone.items()
        }

    def _resting(self) -> list[Member]:
        """Some letters that are parked or discarded, of each the newest record."""
        world, random, newest = self._world, self.random, dict[str, bytes]()
        for topic in (world.own.parked, "shop.parked", world.own.discarded):
            for partition in world.log.topics[topic]:
                for record in partition.read(0, partition.end)[0]:
                    place = ParkedPlace(hash_topic_id(topic), partition.number, record.offset())
                    newest[world.ledger.who.of_record(record)] = place.encode()
                    world.ledger.actions.records[place.encode()] = record
        # Whoever returns letters does not know what waits in other shards for the very same time.
        chosen = {place: letter for letter, place in sorted(newest.items())
                  if random.random() < (0.3 if self.hourly else 0.5) and not (self.hourly and self._shard(letter))}  # fmt: skip
        world.ledger.actions.resting |= chosen
        # As a preview has it: letters with the same coordinates are due at different times.
        sources = [hash(letter.split(" ")[0]) for letter in chosen.values()]
        due = DueTimes(at_ms=self._hour_ms() if self.hourly else world.now_ms + random.randint(0, _LATER_MS))
        return list(request.renew_action(Action("", "", 0, [], 0), due).iterate_resting(list(chosen), sources, world.now_ms))

    def _edits_at_rest(self, members: list[Member]) -> list[Member]:
        """Edits of letters that rest; now and then of what is not there."""
        random, kept = self.random, self._world.ledger.actions.records
        edits = []
        for member in members:
            record = kept[member.key if random.random() < 0.8 else random.choice(members).key]
            value = b"edited %d" % random.randrange(1 << 30)
            entry = Entry(record.topic(), record.key(), value, list(record.headers() or []), None, "")
            failed = entry_keys.parse_source(f"0/{(header(kept[member.key], names.SOURCE) or b'').decode()}")
            key = entry_keys.build_key(0, entry_keys.build_key_stem(failed.topic, failed.partition), failed.offset)
            edited = self._world.keys.codec_of_operators().encode(key, entry)
            edits.append(Member(member.key, member.due_at_ms, record_digest(record, PLAIN), edited))
        return edits

    def _hour_ms(self) -> int:
        """A time that comes to others, too."""
        return (self._world.now_ms // _LATER_MS + 1) * _LATER_MS

    def _shard(self, letter: str) -> int:
        """Find the shard in which a letter waits when it is returned."""
        record = self._world.ledger.letters[letter].record
        source = f"{record.topic()}/{record.partition()}/{record.offset()}"
        return crc32(record.key() or source.encode()) % SHARDS

    def _edited(self, key: bytes, seen: bytes) -> bytes:
        entry = OBSERVER.decode(key, seen)
        value = b"edited %d" % self.random.randrange(1 << 30)
        return self._world.keys.codec_of_operators().encode(key, msgspec.structs.replace(entry, value=value))

    def _waiting(self) -> dict[int, dict[bytes, bytes]]:
        """Entries as whoever folds the changelog sees them now, by shard."""
        found: dict[int, dict[bytes, bytes]] = {}
        for number, rows in self._world.ledger.changelog.items():
            fold = {key: value for _, key, value in sorted(rows, key=lambda row: row[0])}
            found[number] = {k: v for k, v in fold.items() if v is not None and entry_keys.FIRST_KEY <= k < entry_keys.END_KEY}
            self._seen = {**{(number, key): value for key, value in found[number].items() if opens(key, value)}, **self._seen}
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
                    key = action_records.build_slice_key(action, step, count[number])
                    self._write({number: [(key, action_records.encode_slice(some[n : n + size], world.now_ms))]})
        rests = any(returned_offsets.is_place(member.key) for some in members.values() for member in some)
        which = f"action {kind}" + (" of what rests" if rests else "") + (" in steps" if ramp else "")
        world.fault(which, f"{action.hex()} {count}")
        if random.random() < 0.1:
            world.happened["action without a head"] += 1
            return
        patch = Patch({"patched": "yes"}) if kind == action_records.PATCH else None
        target = SLOW if kind == action_records.REDIRECT else None
        total = sum(map(len, members.values()))
        head = Action(kind, "sim", world.now_ms, count, total, target=target, patch=patch, undoes=undoes.hex() or None,
                      parking=self._parking() if rests else {}, ramp=ramp, policies=world.delay)  # fmt: skip
        world.ledger.actions.asked(action, head, members, complete=all_of_it, steps=steps)
        twice = 1 + (random.random() < 0.2)
        for _ in range(twice):
            self._everywhere(action_records.build_head_key(action), action_records.encode(head))

    def _ramp(self, kind: str, members: dict[int, list[Member]]) -> tuple[Ramp | None, dict[tuple[int, bytes], int]]:
        """Steps, for some that send letters, and which member is in which."""
        random, keys = self.random, [(shard, member.key) for shard, some in members.items() for member in some]
        if kind not in (action_records.RETRY, action_records.REDIRECT) or random.random() < 0.3:
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
    def _by_step(
        members: dict[int, list[Member]], steps: dict[tuple[int, bytes], int]
    ) -> Iterator[tuple[int, int, list[Member]]]:
        for number, some in members.items():
            for step in sorted({steps.get((number, member.key), 0) for member in some}):
                yield number, step, [member for member in some if steps.get((number, member.key), 0) == step]

    def _parking(self) -> dict[str, str]:
        own = self._world.own
        return {hash_topic_id(topic).hex(): topic for topic in (own.parked, "shop.parked", own.discarded)}

    def _order(self, action: bytes) -> None:
        """Hold it, let it go on, or cancel it."""
        world, random = self._world, self.random
        drawn = random.random()
        if drawn < 0.4:
            world.fault("action held", action.hex())
            self._everywhere(action_records.build_held_key(action), action_records.encode(Order("sim", world.now_ms)))
        elif drawn < 0.8:
            self._resume(action)
        else:
            world.fault("action cancelled", action.hex())
            self._everywhere(action_records.build_cancelled_key(action), action_records.encode(Order("sim", world.now_ms)))

    def _resume(self, action: bytes) -> None:
        order = Order("sim", self._world.now_ms, hold=self._world.now_ms)
        self._everywhere(action_records.build_resumed_key(action), action_records.encode(order))

    def mend(self) -> None:
        """Let what a worker has held go on."""
        for shard in range(SHARDS):
            rows = sorted(self._world.ledger.changelog.get(shard, []), key=lambda row: row[0])
            fold = {key: value for _, key, value in rows if value is not None}
            for action, asked in sorted(self._world.ledger.actions.started.items()):
                if asked.complete and (value := fold.get(action_records.build_held_key(action))):
                    self._mend(action, asked.head, msgspec.json.decode(value, type=Order), fold)

    def _mend(self, action: bytes, head: Action, held: Order, fold: dict[bytes, bytes]) -> None:
        last = fold.get(action_records.build_resumed_key(action))
        before = Order("", 0) if last is None else msgspec.json.decode(last, type=Order)
        if self._world.calm and "breaker" in held.reason and self.random.random() < 0.9:
            # It takes a while until the target is tried again.
            return
        if before.hold < held.at_ms and (head.ramp or held.policies):
            self._world.happened["ramp held, and resumed" if not held.policies else "held for its policies, and resumed"] += 1
            order = Order("sim", self._world.now_ms, hold=held.at_ms, policies=held.policies or before.policies)
            self._everywhere(action_records.build_resumed_key(action), action_records.encode(order))

    def resume(self) -> None:
        """Nobody asks for anything any more, and all goes on."""
        self.left = 0
        if self.patient:
            # What was asked for under another policy file would wait for that.
            self._world.outside.reschedule(acted=False)
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
