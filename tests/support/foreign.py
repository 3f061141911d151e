"""Records that nobody should write to the service's own topics; the same seed always makes the same ones.

Half of them are what the service writes there, with something wrong; the others are anything. None is of a version to come but
where that is asked for: what a newer version wrote to the changelog stops a shard, and is meant to.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from confluent_kafka import Producer

from retry.clock import wall_ms
from retry.dead_letters import retry_headers
from retry.delay_queue import action_records, control_records, entry_keys, ramp_records, returned_offsets
from retry.delay_queue.action_records import Action, Member, Order, Tally
from retry.delay_queue.control_records import Pause, Reschedule
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.returned_offsets import ParkedPlace
from retry.delay_queue.table.changelog_records import select_readable_rows
from retry.errors import EntryNewer, ReadPositionNewer
from retry.intake import attempts
from retry.intake.gather_blocks import encode_block
from retry.intake.read_positions import ReadPosition, RereadRequest, fold_record
from retry.kafka.topics import TopicNames
from retry.telemetry import call_records, offset_records, outcomes, worker_records
from retry.telemetry.call_records import Called
from retry.telemetry.offset_records import Position
from retry.telemetry.worker_records import BreakerRecord, WorkerRecord
from retry.testing.kafka import MemoryRecord
from tests.support.blocks import SHARED, letters_of
from tests.support.hostile import _TEXTS
from tests.support.reading import QUIET

Headers = list[tuple[str, bytes | None]]
_HUGE = 200_000
_DEEP = 20_000
# As JSON has them, since no object of Python stands for some of these.
_VALUES = (
    "null", '""', "true", "[]", "{}", "0", "-1", "1.5", "1e400", "-1e400", "NaN", "Infinity", "9" * 400, "-" + "9" * 25,
    "9223372036854775807", "-9223372036854775808", "18446744073709551615", "9007199254740993", "253402300800000", '"\\ud800"',
    '"\\u0000"', '"-1"', '"x/y/z"', '"' + "x" * _HUGE + '"', "[" * 40 + "]" * 40, "[" * _DEEP + "]" * _DEEP, "[null]", '["\\n"]',
    '{"a": 1}', "[[1, 2], [3]]", '"\x1b[2J<script>alert(1)</script>"'.replace("\x1b", "\\u001b"),
)  # fmt: skip


class Foreign(NamedTuple):
    """One record that a stranger wrote to a topic of the service."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class ForeignRecords:
    """Makes them, for one deployment.

    Args:
      dead_letters: a topic whose letters the service reads; their coordinates are in what is nearly right.
    """

    def __init__(self, seed: int, own: TopicNames, dead_letters: str) -> None:
        self._draw, self._own, self._topic = random.Random(seed), own, dead_letters
        self._now_ms = wall_ms()
        self._compacted = own.changelog, own.calls, own.notes, own.positions
        self._makers: dict[str, Callable[[], Foreign]] = {
            own.changelog: self._changelog, own.outcomes: self._outcome, own.lineage: self._lineage, own.parked: self._resting,
            own.calls: self._call, own.parked_timers: self._resting, own.discarded: self._resting, own.audit: self._audited,
            own.notes: self._note, own.positions: self._position,
        }  # fmt: skip

    def topics(self) -> list[str]:
        """List every topic of the service's own."""
        return list(self._makers)

    def records(self, topic: str, count: int) -> Iterator[Foreign]:
        """So many for a topic."""
        for _ in range(count):
            made = self._makers[topic]() if self._draw.random() < 0.6 else self._anything()
            if topic in self._compacted and made.key is None:
                # A compacted topic takes none without.
                made = made._replace(key=self._raw(40) or b"k")
            if topic == self._own.changelog and _is_newer(made):
                # Whatever is random may begin as what is to come.
                made = made._replace(key=b"\x7f" + (made.key or b""))
            if topic == self._own.positions and _is_newer_position(made):
                made = made._replace(value=b"")
            yield made

    def _raw(self, most: int) -> bytes:
        return self._draw.randbytes(self._draw.randrange(most))

    def _anything(self) -> Foreign:
        draw = self._draw
        key = draw.choice((None, b"", self._raw(60), draw.choice(_TEXTS).encode(), b"position", b"console", b"note/x"))
        value = draw.choice((
            None, b"", self._raw(200), draw.choice(_VALUES).encode("utf-8", "replace"), b"{" + self._raw(50), b'{"v": 99}',
            b'{"\xff": "\xfe"}', b'{"v": 1, "id": "\xff\xfe"}', b"\x02" + self._raw(80), b"\xdd\xff\xff\xff\xff",
            bytes(draw.choice((1, _HUGE))), b"[" * _DEEP, b"\x91" * _DEEP,
        ))  # fmt: skip
        return Foreign(key, value, tuple(self._headers()))

    def _headers(self) -> Headers:
        draw = self._draw
        names = draw.choices([*sorted(retry_headers.OURS), "task-source", "webhook-url", "x", "é"], k=draw.randrange(9))
        place = f"{self._topic}/0/0".encode()
        values = (b"", None, b"\xff\xfe", b"-1", b"9" * 30, b"9" * 5_000, self._raw(30), b"superseded", place)
        return [(name, draw.choice(values)) for name in names]

    def _spoilt(self, good: Mapping[str, Any]) -> bytes:
        """A JSON object of which something is wrong, somewhere."""
        draw = self._draw
        fields = {name: json.dumps(value) for name, value in good.items()}
        for name in draw.sample(sorted(fields), min(len(fields), draw.choice((1, 1, 1, 2, 3)))):
            how = draw.randrange(4)
            value = good[name]
            if how == 0:
                del fields[name]
            elif how == 1 and isinstance(value, dict) and value:
                fields[name] = self._spoilt(value).decode("utf-8", "replace")
            elif how == 1 and isinstance(value, list) and value and isinstance(value[0], dict):
                fields[name] = "[" + self._spoilt(value[0]).decode("utf-8", "replace") + "]"
            else:
                fields[name] = draw.choice(_VALUES)
        text = "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in fields.items()) + "}"
        raw = text.encode("utf-8", "replace")
        spoil = draw.randrange(8)
        if spoil == 0:
            return raw[: draw.randrange(len(raw))]
        return raw.replace(b'"', b'"\xff', draw.choice((3, 5))) if spoil == 1 else raw

    def _packed(self, good: list[Any]) -> bytes:
        """A MessagePack array of which something is wrong."""
        draw, changed = self._draw, list(good)
        at = draw.randrange(1, len(changed))
        changed[at] = draw.choice(
            (None, -1, 1 << 63, -(1 << 63), 1.5, float("nan"), [], {}, "x" * _HUGE, b"\xff", [[1]], [["a", 1]])
        )
        raw = msgspec.msgpack.encode(changed)
        how = draw.randrange(6)
        if how == 0:
            return raw[: draw.randrange(3, len(raw))]
        if how == 1:
            # A text that is none.
            return msgspec.msgpack.encode(good).replace(b"testers", b"te\xff\xfeers")
        return raw + b"\x91" * _DEEP if how == 2 else raw

    def _changelog(self) -> Foreign:
        draw, action = self._draw, self._draw.randbytes(8)
        due_ms, offset = self._now_ms + draw.choice((-1_000, 3_600_000)), draw.choice((1 << 40, 1 << 63, (1 << 64) - 1))
        stems = entry_keys.build_key_stem(self._topic, 0), b"\xff\xfe\0\0\0\0\0", entry_keys.build_key_stem(self._topic, 1 << 31)
        stem = draw.choice(stems)
        lane = entry_keys.lane("testers", self._topic, self._topic.replace("DLT", "retry"), draw.random() < 0.3)
        if lane[0] == entry_keys.ORDERED:
            stem = entry_keys.hash_record_key("testers", self._topic, b"k") + stem
        key = entry_keys.build_key(due_ms, stem, offset + draw.randrange(1_000_000) if offset < 1 << 63 else offset, lane)
        if draw.random() < 0.3:
            named = entry_keys.build_named_lane("testers", self._topic, "https://127.0.0.1:1")
            key = entry_keys.build_named_key(due_ms, draw.randbytes(16), 1, stem, 7, named)
        entry = [1, "nowhere", b"k", b"v", [["trace", b"1"]], self._now_ms, "testers", self._now_ms]
        shared = SHARED._replace(lane=lane, stem=entry_keys.build_key_stem(self._topic, 0), destination="nowhere", team="testers")
        block_key, block = encode_block(shared, letters_of(3, min(offset, 1 << 47), due_ms))
        if draw.random() < 0.2:
            block_key = block_key[: draw.randrange(20, len(block_key))]
        pause = msgspec.to_builtins(Pause(self._now_ms, "why", None, "eve"))
        reschedule = msgspec.to_builtins(Reschedule(self._now_ms, "testers"))
        head = msgspec.to_builtins(Action("retry", "eve", self._now_ms, [1, 1], 2, teams=["testers"]))
        order, tally = (msgspec.to_builtins(each) for each in (Order("eve", self._now_ms), Tally(1, 1)))
        members = [1, self._now_ms, [list(msgspec.to_builtins(Member(key, due_ms))) for _ in range(2)]]
        parts = (
            action_records.build_held_key,
            action_records.build_resumed_key,
            action_records.build_cancelled_key,
            ramp_records.step_key,
        )
        place = ParkedPlace(draw.randbytes(16), 0, 7)
        return draw.choice((
            lambda: Foreign(key, self._packed(entry)), lambda: Foreign(key, self._packed(entry)),
            lambda: Foreign(block_key, self._packed(msgspec.msgpack.decode(block))),
            lambda: Foreign(control_records.pause_key("topic", f"x{offset}"), self._spoilt(pause)),
            lambda: Foreign(control_records.reschedule_key(draw.randrange(1 << 40)), self._spoilt(reschedule)),
            lambda: Foreign(action_records.build_head_key(action), self._spoilt(head)),
            lambda: Foreign(b"\x10action/no-hex", self._spoilt(head)),
            lambda: Foreign(draw.choice(parts)(action), self._spoilt(order)),
            lambda: Foreign(action_records.tally_key(action), self._spoilt(tally)),
            lambda: Foreign(action_records.build_slice_key(action, 0, 0), self._packed(members)),
            lambda: Foreign(ramp_records.build_sending_key(action, 0, 0, 0), self._packed(members)),
            lambda: Foreign(ramp_records.FAILED + action + bytes(10), self._raw(20)),
            lambda: Foreign(returned_offsets.RETURNED + place.block()[1:], self._raw(60)),
        ))()  # fmt: skip

    def _outcome(self) -> Foreign:
        if self._draw.random() < 0.2:
            at = self._now_ms
            position = msgspec.to_builtins(Position("g", self._topic, 0, 1, at, passed_ms=at))
            return Foreign(offset_records.KEY, self._spoilt(position))
        letters = outcomes.LettersByShared(list)
        shared = outcomes.SharedFields(
            "testers", self._topic, 0, "testers/x", 1, "E", "retry", None, self._topic.replace("DLT", "retry"), None, None, None
        )
        letters[shared].append((b"%016x" % 1, 1 << 40, self._now_ms, self._now_ms, self._now_ms))
        (good,) = outcomes.encode_outcomes(letters, self._now_ms)
        record = json.loads(good)
        if self._draw.random() < 0.7:
            record["letters"] = [json.loads(self._spoilt_object(record["letters"][0]))]
            if self._draw.random() < 0.5:
                return Foreign(None, json.dumps(record).encode())
        return Foreign(None, self._spoilt(record), tuple(self._headers()))

    def _spoilt_object(self, good: Mapping[str, Any]) -> bytes:
        """Spoil a record as `_spoilt` does, or as JSON that Python reads."""
        while True:
            raw = self._spoilt(good)
            try:
                json.loads(raw)
            except (ValueError, RecursionError):
                continue
            return raw

    def _lineage(self) -> Foreign:
        good = attempts.pack("testers", [attempts.build_fields(1 << 40, 7, self._now_ms, self._now_ms, 1)])
        bad = good[:-3], b"\x02" + good[1:], b"\xff" + good, good + b"x", b"\0\1" + good[1:-1], b"\0" + good
        value = self._draw.choice(bad)
        return Foreign(self._draw.choice((None, b"x", b"\xff", b"0102030405060708/9999999")), value)

    def _resting(self) -> Foreign:
        """Make what looks like a letter that was parked there."""
        now_ms = b"%d" % self._now_ms
        headers = retry_headers.make_retry_headers(
            b"%016x" % 1, b"1", f"{self._topic}/0/{1 << 40}".encode(), now_ms, b"testers/x", now_ms
        )
        headers.append((retry_headers.PARKED_REASON, b"rule"))
        at = self._draw.randrange(len(headers))
        bad = None, b"", b"\xff", b"9" * 5_000, b"a/b", b"/0/1", b"x/-1/9", self._raw(20)
        headers[at] = (headers[at][0], self._draw.choice(bad))
        return Foreign(self._raw(20), self._draw.choice((None, b"v", self._raw(50))), (*headers, *self._headers()))

    def _call(self) -> Foreign:
        at = self._now_ms
        good = Called("t1", "testers", "h", "m", 1, at, 5, at, "delivered", 200, None, None, None, "ok")
        return Foreign(b"t1", self._spoilt(json.loads(call_records.to_json(good))))

    def _audited(self) -> Foreign:
        letter = {"letter": f"{self._topic}/0/1", "due_ms": self._now_ms, "result": "done", "new_target": "x"}
        good = {"v": 1, "action": "ab" * 8, "kind": "retry", "by": "eve", "at_ms": self._now_ms, "shard": 0, "reason": "",
                "teams": ["testers"], "letters": [letter]}  # fmt: skip
        return Foreign(self._draw.choice((b"ab" * 8, b"console", b"\xff", None)), self._spoilt(good))

    def _position(self) -> Foreign:
        # Of a topic that is not there any more: one that is well made is believed.
        position = msgspec.to_builtins(ReadPosition(topic_id="gone", offset=1 << 40))
        request = msgspec.to_builtins(
            RereadRequest(topic_id="gone", offset=0, lowest_offset=0, number=1, asked_at_ms=self._now_ms, by="eve")
        )
        partition = self._draw.choice((b"/0", b"/1", b"/-1", b"/99999999999", b"", b"\xff"))
        prefix, good = self._draw.choice(((b"", position), (b"reread ", request)))
        return Foreign(prefix + self._topic.encode() + partition, self._spoilt(good))

    def _note(self) -> Foreign:
        at, group = self._now_ms, f"{self._draw.randrange(1 << 60):016x}"
        worker = WorkerRecord("h", at, at, 30_000, [0], [BreakerRecord("t", "open", "why", at)])
        goods: dict[str, dict[str, Any]] = {
            f"note/{group}": {"owner": "a", "note": "b", "link": "", "by": "c", "at_ms": at, "teams": ["testers"], "v": 1},
            f"resolved/{group}": {"by": "c", "at_ms": at, "v": 1},
            f"change/{group}": {"groups": [group], "by": "c", "at_ms": at, "into": group, "by_what": "", "v": 1},
            f"filter/testers/{group}": {"text": "state:parked", "by": "c", "at_ms": at, "v": 1},
            f"worker/{group}": json.loads(worker_records.to_json(worker)),
        }
        key, good = self._draw.choice(list(goods.items()))
        if key.startswith("change/") and self._draw.random() < 0.3:
            return Foreign(key.encode(), json.dumps({**good, "by_what": "__class__", "into": ""}).encode())
        return Foreign(self._draw.choice((key, key, "what/else", "note")).encode(), self._spoilt(good))


def _is_newer_position(made: Foreign) -> bool:
    try:
        fold_record(MemoryRecord(Entry("", made.key, made.value, [], None, ""), 0, 0, 0), {}, {})
    except ReadPositionNewer:
        return True
    return False


def _is_newer(made: Foreign) -> bool:
    """Whether a record of the changelog looks as if a newer version had written it."""
    try:
        select_readable_rows([(made.key or b"", made.value)])
    except EntryNewer:
        return True
    return False


def write_foreign(bootstrap_servers: str, records: ForeignRecords, topic: str, count: int, partitions: int) -> None:
    """Write so many to a topic, over its partitions."""
    producer = Producer({
        "bootstrap.servers": bootstrap_servers, "message.max.bytes": 2 << 20, "linger.ms": 5, "logger": QUIET,
        "queue.buffering.max.kbytes": 512 << 10,
    })  # fmt: skip
    refused: list[str] = []

    def note_refusal(error: object, _message: object) -> None:
        if error is not None:
            refused.append(str(error))

    for n, each in enumerate(records.records(topic, count)):
        while True:
            try:
                producer.produce(topic, each.value, each.key, n % partitions, note_refusal, headers=list(each.headers))
            except BufferError:
                producer.poll(0.1)
            else:
                break
        producer.poll(0)
    assert producer.flush(120) == 0
    assert refused == [], refused[:3]
