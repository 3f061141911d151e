"""Records that nobody should write, for every way into the service; the same seed always makes the same ones.

Each has a number of its own in its key or its value where that is possible, so that no two are equal by chance.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from retry.dead_letters import retry_headers as names
from retry.dead_letters.frameworks import KNOWN
from retry.scheduling.tasks import definition, formats
from tests.support.letters import Headers

LETTER, TASK, SCHEDULE, TIMER = "letter", "task", "schedule", "timer"
MB = 1 << 20
_YEAR_MS = 365 * 86_400_000
_LONG_NUMBER = b"9" * 5_000
_NUMBERS = (
    b"-1", b"0", b"1", b"7", b"2147483648", b"9223372036854775807", b"-9223372036854775808", b"1e9", b"NaN", b"", None, b" 3 ",
    b"+1", b"0x1",
    b"1_0", "٣".encode(), b"\x00\x00\x00\x03", b"\xff" * 8, b"1700000000", b"1700000000000", b"253402300799", _LONG_NUMBER,
)  # fmt: skip
_TEXTS = (
    "", ".", "..", "../x", "a/b", "%", "a b", "team=7", "__consumer_offsets", "x" * 250, "é" * 200, "日" * 100,
    "\x1b[2J\x1b]0;owned\x07",
    "a\r\nSet-Cookie: b", "\u202eevil\u2066", "\u200b", "${jndi:ldap://x/a}%n%s{0.__class__}",
    "<script>alert(1)</script>{{7*7}}", "null",
    "java.lang." + "X" * 2_000, "007", "2026-01-01", "$(id)", "'; DROP TABLE x;--", "\U0001f4a9" * 30, "\U000e0001",
)  # fmt: skip
_POINTERS = (
    ("__dlq.errors.", ("topic", "partition", "offset", "group", "delivery.count")),
    ("__streams.errors.", ("topic", "partition", "offset", "exception", "message")),
)
_CRONS = (
    "0 0 30 2 *",
    "* * * * * * *",
    "60 0 * * *",
    "*/0 * * * *",
    "@never",
    "0 0 31 4 *",
    "9" * 5_000 + " * * * *",
    "\x1b * * * *",
    "",
)
_URLS = (
    "", "x", "http://", "gopher://127.0.0.1/", "http://169.254.169.254/latest", "https://user:pass@example.com/",
    "http://[::1]:22/", "//a",
    "https://127.0.0.1/", "https://" + "a" * 5_000, "https://xn--a/", "https://exa mple.com/", "javascript:alert(1)",
    "https://0x7f000001/", "\x00",
)  # fmt: skip


class Hostile(NamedTuple):
    """One of them. `topic` says which of the door's own topics; of a timer `value` is the request's body."""

    source: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


Make = Callable[["Generator", int], Hostile]


class Generator:
    """A generator of hostile records, by a seed.

    Args:
      own: topics of the service itself and of others, that nothing may be sent to because a record says so.
      outputs: where runs of tasks may go; `target` the same of schedules.
    """

    def __init__(self, seed: int, own: list[str], outputs: list[str], target: str) -> None:
        self.draw, self._own, self._outputs, self._target = random.Random(seed), own, outputs, target
        self._samples = definition.make_samples(seed, outputs)

    def records(self, count: int) -> Iterator[Hostile]:
        """So many, of all entry sources and kinds."""
        kinds, weights = zip(*_KINDS.items(), strict=True)
        for n, make in enumerate(self.draw.choices(kinds, weights, k=count)):
            yield make(self, n)

    def text(self) -> str:
        """Make a text that is no name."""
        return self.draw.choice((*_TEXTS, *self._own))

    def number(self) -> bytes | None:
        """Make a number that is none, or one that means something else."""
        return self.draw.choice((*_NUMBERS, b"%d" % self.draw.randrange(1 << 63)))

    def raw(self, at_most: int = 200) -> bytes:
        """Make any bytes, at most so many."""
        return self.draw.randbytes(self.draw.randrange(at_most))

    def junk(self) -> bytes | None:
        """The value of a header."""
        return self.draw.choice((self.number, lambda: self.text().encode(), self.raw))()

    def some(self, of: list[str], most: int) -> Headers:
        """Headers by some of these names, some of them more than once."""
        return [(name, self.junk()) for name in self.draw.choices(of, k=self.draw.randrange(1, most))]


def _plain(g: Generator, n: int) -> Hostile:
    key = g.draw.choice((None, b"", b"\xff\xfe\x00", g.text().encode(), g.raw()))
    value = g.draw.choice(
        (None, b"", g.raw(), g.text().encode() + b"%d" % n, b"\x00\xff\xff\xff\xffavro %d" % n, b"cos\nsystem\n%d" % n)
    )
    return Hostile(LETTER, "hostile", key, value, [(g.text().replace("\x00", ""), g.junk())])


def _of_frameworks(g: Generator, n: int) -> Hostile:
    return Hostile(LETTER, g.draw.choice(("hostile", "origin")), b"f%d" % n, g.raw(), g.some(sorted(KNOWN), 30))


def forged_letter(g: Generator, n: int) -> Hostile:
    return Hostile(LETTER, "hostile", b"o%d" % n, g.raw(), g.some(sorted(names.OURS), 12))


def _wish(g: Generator, n: int) -> Hostile:
    at = g.draw.choice((g.number(), b"%d" % (1_700_000_000_000 + g.draw.randrange(-50, 9_000) * _YEAR_MS)))
    return Hostile(LETTER, "hostile", b"w%d" % n, b"wish", [(names.RETRY_AT_MS, at)])


def _pointer(g: Generator, _n: int) -> Hostile:
    prefix, says = g.draw.choice(_POINTERS)
    told: dict[str, bytes | None] = {name: g.junk() for name in says} | {"topic": g.text().encode()}
    if g.draw.random() < 0.7:
        told |= {"partition": b"%d" % g.draw.choice((0, 5, 1 << 30)), "offset": b"%d" % g.draw.choice((0, 1 << 40))}
    return Hostile(LETTER, "hostile", None, None, [(prefix + name, value) for name, value in told.items()])


def _origin(g: Generator, n: int) -> Hostile:
    name = g.draw.choice(("kafka_dlt-original-topic", "x-original-topic", "__connect.errors.topic"))
    return Hostile(LETTER, "origin", b"t%d" % n, b"to where?", [(name, g.text().encode())])


def _envelope(g: Generator, n: int) -> Hostile:
    depth = g.draw.choice((10, 10_000))
    deep = "[" * depth + "]" * g.draw.choice((0, depth))
    long = g.draw.choice(("1", _LONG_NUMBER.decode(), "1e400", '"\\ud800"', "NaN", "-1"))
    celery = f'{{"headers":{{"id":"{n}","task":"t","retries":{long},"exc":{deep}}},"content-type":"x","body":{deep}}}'
    dramatiq = f'{{"queue_name":"q","actor_name":"a","message_id":"{n}","options":{{"retries":{long},"traceback":{deep}}}}}'
    return Hostile(LETTER, "hostile", b"e%d" % n, g.draw.choice((celery, dramatiq)).encode())


def _header_bomb(g: Generator, n: int) -> Hostile:
    many = g.draw.choice((300, 3_000))
    return Hostile(LETTER, "hostile", b"h%d" % n, b"bomb", [(f"h{k}", g.draw.choice((None, b"x" * 50))) for k in range(many)])


def _large(g: Generator, n: int) -> Hostile:
    size = g.draw.choice((MB // 4, 1_000_000, 2 * MB, 3 * MB))
    body = g.draw.choice((bytes, g.draw.randbytes))(size)
    return Hostile(LETTER, g.draw.choice(("hostile", "narrow")), b"l%d" % n, body)


def _control(g: Generator, _n: int) -> Hostile:
    key = g.draw.choice((b"\x10pause/all/", b"\x10pause/team/good", b"\x10reschedule/1", b"\x7f", b"\x01" + g.raw(60)))
    return Hostile(LETTER, "hostile", key, json.dumps({"v": 1, "since_ms": 0, "reason": g.text()}).encode())


def _late_topic(g: Generator, n: int) -> Hostile:
    return Hostile(LETTER, "missing", b"m%d" % n, g.raw())


def _broken_avro(g: Generator, n: int) -> Hostile:
    sample = next(g._samples)
    key, value = definition.encode_sample(sample)
    cut = g.draw.randrange(len(value))
    broken = g.draw.choice(
        (
            value[:cut],
            value[:cut] + g.raw(30),
            b"\x00" + value,
            g.raw(),
            b"",
            None,
            b"\xff" * 40,
            value + b"x" * g.draw.choice((9, 9_000, MB)),
        )
    )
    other = formats.encode_avro({"customerId": g.text(), "taskName": f"{n}"}, formats.package_schema(formats.KEY_SCHEMA))
    return Hostile(
        TASK, "tasks", g.draw.choice((key, other, None, b"", g.raw())), broken, g.some(["task-run", "task-due-ms", "x"], 4)
    )


def _task(g: Generator, n: int) -> Hostile:
    key = {"customerId": g.text(), "taskName": f"{g.text()}{n}"}
    unit = g.draw.choice(("HOURS", "SECONDS", "YEARS", "", None, 7))
    frequency = g.draw.choice(
        (None, {"frequencyTimeUnit": unit, "time": g.draw.choice((0, -1, 1, 1 << 62, 1.5, "1", None))}, [], 5)
    )
    configured: dict[str, Any] = {
        g.draw.choice(("schedule.cron", "schedule.timeZone", "schedule.start", "schedule.jitter")): g.text()
    }
    if g.draw.random() < 0.4:
        frequency, configured = (
            None,
            {"schedule.cron": g.draw.choice(_CRONS), "schedule.timeZone": g.draw.choice(("UTC", g.text()))},
        )
    config = {"outputTopic": g.draw.choice((g.text(), *g._outputs)), "configurations": configured}
    value = json.dumps({**key, "frequency": frequency, "config": config, "data": {"is": g.text()}})
    deep = value[:-1] + ',"deep":' + g.draw.choice(("[" * 100_000, _LONG_NUMBER.decode(), '"\\ud800"')) + "}"
    return Hostile(TASK, "tasks", json.dumps(key).encode(), g.draw.choice((value, value, deep)).encode())


def _schedule(g: Generator, n: int) -> Hostile:
    key = g.draw.choice((None, b"", b"  ", b"s%d" % n, g.raw() + b"%d" % n, b"k" * 100_000 + b"%d" % n))
    told = [("scheduler-epoch", g.number()), ("scheduler-target-topic", g.draw.choice((g.text(), g._target)).encode())]
    told += g.some(["scheduler-target-key", "scheduler-timestamp", "scheduler-done", "scheduler-key", "x"], 5)
    value = g.draw.choice((b"", g.raw(), g.text().encode(), bytes(g.draw.choice((9, 9_000, 900_000)))))
    return Hostile(SCHEDULE, "schedules", key, value, g.draw.sample(told, len(told)))


def _timer(g: Generator, n: int) -> Hostile:
    wish = {"url": g.draw.choice(_URLS), "after": g.draw.choice(("1h", "", "-1s", "9" * 30 + "s", "\x1b")), "body": g.text()}
    more = g.draw.choice(
        ({}, {"policy": {"backoff": g.text()}}, {"headers": {g.text(): g.text()}}, {"at": 1}, {"idempotency_key": "k" * 999})
    )
    text = json.dumps({**wish, **more})
    broken = (
        "[" * 50_000,
        text[:-1],
        '{"url":1}',
        "",
        "\xff",
        f'{{"at":{"9" * 5_000},"url":"https://a.example"}}',
        f'{{"n{n}":"\\ud800"}}',
    )
    deep = '{"url":"https://a.example","after":"1h","policy":' + '{"a":' * 20_000 + "1" + "}" * 20_001
    return Hostile(TIMER, "timers", None, g.draw.choice((text, text, deep, *broken)).encode("utf-8", "surrogatepass"))


_KINDS: dict[Make, float] = {
    _plain: 15, _of_frameworks: 15, forged_letter: 12, _wish: 6, _pointer: 6, _origin: 6, _envelope: 4, _header_bomb: 3,
    _large: 1.5, _control: 3, _late_topic: 1, _broken_avro: 6, _task: 7, _schedule: 10, _timer: 4,
}  # fmt: skip
