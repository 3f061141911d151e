"""Dead letters of every framework, and what nobody would write: the letters of tests/fixtures, changed in some places."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from retry.dead_letters.frameworks import KNOWN
from retry.delay_queue.envelopes import Entry
from retry.record import Header, Headers, Record
from tests.fixtures import make_letters

_FIXTURES = Path(make_letters.__file__).parent
_FILES = sorted(_FIXTURES.glob("letters/*.jsonl")) + sorted(_FIXTURES.glob("captured/*.jsonl"))
_NAMES = sorted(KNOWN)
_NUMBERS: list[bytes | None] = [
    b"0", b"1", b"-1", b"+1", b" 7", b"9" * 19, b"9" * 20, b"2147483648", bytes(4), b"\xff" * 4, b"\x7f" + b"\xff" * 7, bytes(8),
    b"\x80" + bytes(7),
]  # fmt: skip
_TEXTS: list[bytes | None] = [
    b"\xff\xfe", b"\x80", b"\xf0\x9f", "\u00e9\u4e16\U0001f600".encode() * 300, b"n\xc3" * 700, b"x" * 5_000, b"orders",
    b"plain.retry", b"back", b'a%b"c', b"java.lang.Slow", b"order 17", b"order 4711", b"order 17 of 'Ann'", b"[]",
    b'[{"queue": "q", "count": 2}]', b"at\nCaused by: \nCaused by: a.B: c", b"\nCaused by: a.B\r", b"x\n ---> A.B: c",
    b"status code 503", b"status code 404", b"order 17: error code 17", b"java.io.IOException: order 17",
    b"x\nCaused by: a.B: status code 503\n\tat a.B", b"x\nCaused by: a.B: status code 404\n\tat a.B",
    b"x\nCaused by: a.B: order 17 of 4\n  Detail: 3\n\tat a.B", b"x\n ---> A.B (0x80004005): c 17\r\n   at A.B",
    b"x\nCaused by: a.B:\n",
]  # fmt: skip
_VALUES = [None, b"", *_NUMBERS, *_TEXTS]
_PAYLOADS: list[bytes | None] = [None, b"", b"same", b'{"actor_name": "a"}', b'{"n": 1}', b"x" * 900]


def as_written() -> list[tuple[str, Record]]:
    """Family and letter: all of the fixtures, those that frameworks wrote to a real broker among them."""
    lines = [json.loads(line) for file in _FILES for line in file.read_text().splitlines()]
    return [(line["expect"]["family"], _record(line)) for line in lines]


def _record(line: dict[str, object]) -> Record:
    def raw(coded: object) -> bytes | None:
        return None if coded is None else base64.b64decode(str(coded))

    headers: Headers = [(name, raw(coded)) for name, coded in line["headers"]]  # type: ignore[attr-defined]
    place = str(line["topic"]), int(str(line["partition"])), int(str(line["offset"]))
    return Record(place, raw(line["key"]), raw(line["value"]), headers, (1, int(str(line["timestamp"]))))


class Mutations:
    """Makes letters out of others.

    Args:
      topics: that they are put in.
      now_ms: around which their timestamps and wishes lie.
    """

    def __init__(self, chance: random.Random, letters: Sequence[Record], topics: Sequence[str], now_ms: int) -> None:
        self._chance, self._letters, self._topics, self._now_ms = chance, letters, topics, now_ms

    def letter(self) -> Record:
        """Another letter, which differs from one of the fixtures in few places, and often in none that matters."""
        chance = self._chance
        letter = chance.choice(self._letters)
        headers = [self._moved(*header) for header in letter.headers()]
        for _ in range(chance.choice([0, 0, 1, 1, 2, 5])):
            chance.choice(self._changes)(self, headers)
        payload = chance.choice([letter.value(), chance.randbytes(4), chance.choice(_PAYLOADS)])
        key = chance.choice([letter.key(), None, b"", b"key"])
        place = chance.choice(self._topics), chance.randrange(2), chance.randrange(1 << 20)
        return Record(place, key, payload, headers, (chance.choice([0, 1, 1, 2]), self._time()))

    def again(self, retry: Entry) -> Record:
        """The letter of a retry that failed again: mostly with all that was sent, often with what a framework adds."""
        chance = self._chance
        added = chance.choice([[], [self._moved(*header) for header in chance.choice(self._letters).headers()]])
        headers = chance.choice([retry.headers + added, added + retry.headers, retry.headers])
        for _ in range(chance.choice([0, 0, 0, 0, 1, 2])):
            chance.choice(self._changes)(self, headers := list(headers))
        source = (dict(retry.headers)["retry-source"] or b"").decode().rsplit("/", 2)
        topic = chance.choice([source[0]] * 9 + [chance.choice(self._topics)])
        place = topic, chance.randrange(2), chance.randrange(1 << 20)
        return Record(place, retry.key, retry.value, headers, (chance.choice([0, 1, 1, 2]), self._time()))

    def _moved(self, name: str, value: bytes | None) -> Header:
        """Mostly another record of the same partition, as letters have it that come after another."""
        if value is None or "offset" not in name.lower() or self._chance.random() < 0.2:
            return name, value
        offset = self._chance.randrange(1 << 20)
        return name, b"%d" % offset if value.isdigit() else offset.to_bytes(8, "big")

    def _time(self) -> int:
        far = 5_000_000_000_000
        return self._chance.choice([-1, 0, 5, far, *(self._now_ms + by for by in (-90_000_000, -1_000, 1_000, 86_400_000))])

    def _drop(self, headers: Headers) -> None:
        if headers:
            headers.pop(self._chance.randrange(len(headers)))

    def _double(self, headers: Headers) -> None:
        if headers:
            name, value = self._chance.choice(headers)
            self._insert(headers, (name, self._chance.choice([value, *_VALUES])))

    def _shuffle(self, headers: Headers) -> None:
        self._chance.shuffle(headers)

    def _replace(self, headers: Headers) -> None:
        self._with_value(headers, lambda _name, _value: self._chance.choice(_VALUES))

    def _borrow(self, headers: Headers) -> None:
        """A value that another letter has under the same name."""

        def borrow_value(name: str, value: bytes | None) -> bytes | None:
            values = [said for letter in self._letters for other, said in letter.headers() if other == name]
            return self._chance.choice(values or [value])

        self._with_value(headers, borrow_value)

    def _truncate(self, headers: Headers) -> None:
        self._with_value(headers, lambda _name, value: value[: self._chance.randrange(len(value) + 1)] if value else value)

    def _renumber(self, headers: Headers) -> None:
        digits = bytes.maketrans(b"0123456789", bytes(self._chance.choices(b"0123456789", k=10)))
        self._with_value(headers, lambda _name, value: value and value.translate(digits))

    def _wish(self, headers: Headers) -> None:
        times = [b"%d" % (self._now_ms + 5_000), b"%d" % (self._now_ms - 5_000), b"", b"soon", None, b"9" * 30]
        self._insert(headers, ("retry-at-ms", self._chance.choice(times)))

    def _ours(self, headers: Headers) -> None:
        name = self._chance.choice(["retry-id", "retry-attempt", "retry-source", "retry-policy", "retry-original-timestamp"])
        self._insert(headers, (name, self._chance.choice([b"1", b"2", b"x", None])))

    def _foreign(self, headers: Headers) -> None:
        name = self._chance.choice([self._chance.choice(_NAMES), "trace-id", "%d", "why", "n" * 3_000])
        self._insert(headers, (name, self._chance.choice(_VALUES)))

    def _insert(self, headers: Headers, header: Header) -> None:
        headers.insert(self._chance.randrange(len(headers) + 1), header)

    def _with_value(self, headers: Headers, change: Callable[[str, bytes | None], bytes | None]) -> None:
        if headers:
            n = self._chance.randrange(len(headers))
            name, value = headers[n]
            headers[n] = name, change(name, value)

    _changes = (_drop, _double, _shuffle, _replace, _replace, _borrow, _borrow, _truncate, _renumber, _wish, _ours, _foreign)
