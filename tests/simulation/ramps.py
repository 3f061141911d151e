"""What is promised of ramps, held against every commit.

| problem | meaning |
| --- | --- |
| unjudged | a letter was put before the step before its own was judged; or a step was opened too early |
| torn | letters were put, sent, or failed again, without what counts them; or the other way round |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from retry.dead_letters import retry_headers as names
from retry.delay_queue import action_records, entry_keys, ramp_records
from retry.delay_queue.action_records import Action, Tally
from retry.delay_queue.ramp_records import FAILED, SENDING, Step
from retry.delay_queue.table.interface import CONTROL
from retry.kafka.topics import TopicNames
from retry.testing.kafka import MemoryRecord, Transaction
from tests.simulation.keys import OBSERVER
from tests.simulation.plan import APP
from tests.simulation.violation import want

_Count = tuple[bytes, int]
Row = tuple[int, bytes, bytes | None]


@dataclass
class Ramps:
    """All ramps of one run.

    Attributes:
      steps: by action, the step of each letter.
      opened: how far each has come.
      put, sent: by action and step, how many letters, as records of the changelog say.
      sending: keys of letters that were put and are not counted as sent, by shard and row.
      failed: lineages that were marked, by action and step.
      judged: how many steps were.
    """

    own: TopicNames
    steps: dict[bytes, dict[str, int]] = field(default_factory=dict)
    heads: dict[bytes, Action] = field(default_factory=dict)
    opened: dict[bytes, Step] = field(default_factory=dict)
    put: Counter[_Count] = field(default_factory=Counter)
    sent: Counter[_Count] = field(default_factory=Counter)
    tallies: dict[tuple[bytes, int], Tally] = field(default_factory=dict)
    sending: dict[tuple[int, bytes], list[bytes]] = field(default_factory=dict)
    failed: set[bytes] = field(default_factory=set)
    judged: int = 0

    def asked(self, action: bytes, head: Action, steps: dict[str, int]) -> None:
        """An operator asks for one, or for an action that is none."""
        if head.ramp is not None:
            self.heads[action], self.steps[action] = head, steps

    def mark(self, action: bytes, letter: str) -> bytes:
        """Make the mark by which a letter says that this action has put it."""
        if action not in self.steps:
            return action.hex().encode()
        return ramp_records.mark(action, self.steps[action][letter])

    def climbs(self, action: bytes) -> bool:
        """Whether it is a ramp that has not come to its end."""
        ramp = self.heads[action].ramp if action in self.heads else None
        return ramp is not None and self.opened.get(action, Step()).step < len(ramp.steps)

    def committed(self, changelog: list[MemoryRecord], shards: dict[int, list[Row]]) -> None:
        """A worker's transaction was decided."""
        put, sent = self._put(changelog), self._sent(changelog, shards)
        counted = Counter[_Count](), Counter[_Count]()
        for record in changelog:
            if (record.key() or b"").endswith(b"/tally") and record.value() is not None:
                self._counted(record, changelog, *counted)
        want(counted[0] == put, "torn", f"{put} was put, and {counted[0]} counted")
        want(counted[1] == sent, "torn", f"{sent} was sent, and {counted[1]} counted")
        self.put.update(put)
        self.sent.update(sent)
        self._opened(changelog)

    def _put(self, changelog: list[MemoryRecord]) -> Counter[_Count]:
        """Letters that a step has put: each is in a row of what is to be sent, behind its entry."""
        rows = [r for r in changelog if (r.key() or b"")[:1] == SENDING and r.value() is not None]
        listed = {(r.partition(), key): r for r in rows for key in _keys(r)}
        found, moved = Counter[_Count](), {r.key() for r in changelog if (r.key() or b"").endswith(b"/tally")}
        for record in changelog:
            key, value = record.key() or b"", record.value()
            if value is None or not entry_keys.FIRST_KEY <= key < entry_keys.END_KEY:
                continue
            said = [text for name, text in OBSERVER.decode_to_show(key, value).headers if name == names.ACTION]
            mark = ramp_records.read_mark(said[0]) if said else None
            if mark is None or action_records.tally_key(mark[0]) not in moved:
                continue
            action, step = mark
            row = listed.pop((record.partition(), key), None)
            known = row is not None and row.offset() > record.offset()
            want(known, "torn", f"{key.hex()} was put, and nobody will know when it is sent")
            opened = self.opened.get(action, Step()).step
            want(step <= opened, "unjudged", f"a letter of step {step} of {action.hex()} was put at step {opened}")
            found[mark] += 1
        want(not listed, "torn", f"{listed.keys()} were not put")
        self.sending |= {(r.partition(), r.key() or b""): _keys(r) for r in rows}
        return found

    def _sent(self, changelog: list[MemoryRecord], shards: dict[int, list[Row]]) -> Counter[_Count]:
        """Letters of which it is said that they do not wait any more."""
        found = Counter[_Count]()
        for record in changelog:
            key = record.key() or b""
            if key[:1] == SENDING and record.value() is None:
                keys, action = self.sending.pop((record.partition(), key)), action_records.find_action_id(key)
                if any((r.key() or b"") == action_records.tally_key(action) for r in changelog):
                    waits = [each.hex() for each in keys if _stands(shards, record.partition(), each)]
                    want(not waits, "torn", f"{waits} still wait, and are said to be sent")
                    found[action, ramp_records.step_of(key)] += len(keys)
        return found

    def _counted(
        self, record: MemoryRecord, changelog: list[MemoryRecord], put: Counter[_Count], sent: Counter[_Count]
    ) -> None:
        action, shard = bytes.fromhex((record.key() or b"").split(b"/")[1].decode()), record.partition()
        if action not in self.heads:
            return
        tally, was = msgspec.json.decode(record.value() or b"", type=Tally), self.tallies.get((action, shard), Tally())
        self.tallies[action, shard] = tally
        for step, now in enumerate(tally.steps):
            before = was.steps[step] if step < len(was.steps) else ramp_records.StepTally()
            put.update({(action, step): now.put - before.put} if now.put != before.put else {})
            sent.update({(action, step): now.sent - before.sent} if now.sent != before.sent else {})
        if shard != ramp_records.HOME and tally.steps != was.steps:
            key = ramp_records.tally_copy_key(action, shard)
            copies = [r.value() for r in changelog if r.key() == key and r.partition() == ramp_records.HOME]
            want(copies == [record.value()], "torn", f"whoever judges {action.hex()} is not told of {tally}")

    def _worked(self, action: bytes, step: int) -> int:
        tallies = [tally for (of, _), tally in self.tallies.items() if of == action and step < len(tally.steps)]
        return sum(tally.steps[step].worked for tally in tallies)

    def _opened(self, changelog: list[MemoryRecord]) -> None:
        for record in changelog:
            key, value = record.key() or b"", record.value()
            is_step = key[:1] == CONTROL and key.endswith(b"/step") and record.partition() == ramp_records.HOME
            if not is_step or value is None:
                continue
            action = bytes.fromhex(key.split(b"/")[1].decode())
            step, was, ramp = msgspec.json.decode(value, type=Step), self.opened.get(action, Step()), self.heads[action].ramp
            want(step.step - was.step in (0, 1), "unjudged", f"{action.hex()} went from {was} to {step}")
            if step.step > was.step and not was.held_ms:
                worked = self._worked(action, was.step)
                done = ramp is not None and worked == ramp.steps[was.step]
                want(done, "unjudged", f"{worked} letters worked off of {was} {ramp}")
                put, sent = self.put[action, was.step], self.sent[action, was.step]
                want(put == sent, "unjudged", f"{put} letters put, {sent} sent, and step {step.step} was opened")
            self.judged += step.step > was.step
            self.opened[action] = step

    def taken_in(self, transaction: Transaction, ramped: Sequence[tuple[bytes, int, int, int] | None]) -> None:
        """Letters were taken in; each that a ramp had put is marked in the very transaction, and no other is."""
        of_intake = transaction.id.startswith(f"{APP}-intake")
        changelog = [r.key() or b"" for r in transaction.records if r.topic() == self.own.changelog]
        found = {key for key in changelog if key[:1] == FAILED}
        if of_intake:
            rows = [ramp_records.build_failed_row(*each[:3], 0, team=each[3]) for each in ramped if each is not None]
            wanted = {bytes(row["key"]) for row in rows}
            want(wanted <= found, "torn", f"{[key.hex() for key in wanted - found]} failed again, and nobody counts that")
            # Without headers nobody can tell the second failure from the first, which counts once.
            unasked = found - wanted - self.failed
            want(not unasked, "torn", f"{[key.hex() for key in unasked]} did not fail again, and count")
            self.failed |= found


def _keys(record: MemoryRecord) -> list[bytes]:
    return [member.key for member in action_records.decode_slice(record.value() or b"").members]


def _stands(shards: dict[int, list[Row]], shard: int, key: bytes) -> bool:
    """Whether an entry waits under this key, or is held."""
    rows = [[row for row in shards.get(shard, []) if row[1] == each] for each in (key, entry_keys.make_held_key(key))]
    return any(of_one and max(of_one)[2] is not None for of_one in rows)
