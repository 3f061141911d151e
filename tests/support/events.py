"""Events of many letters whose consumers recover with known probability: what the service would write, and the truth beside it.

Everything follows from the seed, so that a test can say how many letters of a kind recover at which attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
from confluent_kafka import Producer
from xxhash import xxh3_64_intdigest

from tests.support.outcome_records import tell_of

Row = dict[str, Any]
START_MS = 1_780_272_000_000
_DAY_MS = 86_400_000
SETTLE_MS = 600_000
_PARTITIONS = 4
_SAMPLE_MS = 10_000
_DRAWS = 1 << 64
_HEADERS = {"retry-id": "id", "retry-attempt": "attempt", "retry-due-ms": "due_ms"}


class Kind(NamedTuple):
    """One kind of failure of one team.

    Attributes:
      delays_ms: what its policy waits before each attempt; there are as many attempts.
      ceiling: probability that an attempt succeeds, by attempt, if it waited long enough; the last repeats.
      half_ms: after so long half of that is reached, after twice as long three quarters; 0: at once.
    """

    team: str
    exception: str
    delays_ms: tuple[int, ...]
    ceiling: tuple[float, ...]
    half_ms: int = 0

    def recovers(self, attempt: int, delay_ms: int) -> float:
        """Probability that this attempt succeeds after this delay, given that those before it failed."""
        ceiling = self.ceiling[min(attempt, len(self.ceiling)) - 1]
        return ceiling if self.half_ms == 0 else ceiling * (1 - 0.5 ** (delay_ms / self.half_ms))


_STEPS = tuple(s * 1_000 for s in (10, 30, 60, 120, 300, 600, 1_200, 2_400))
# One that heals with time, one that heals at once or never, one that never heals.
KINDS = (
    Kind("payments", "com.acme.GatewayTimeout", _STEPS, (0.8,), half_ms=60_000),
    Kind("search", "com.acme.Unavailable", _STEPS, (0.7, 0.1, 0.02, 0.0)),
    Kind("billing", "com.acme.Invalid", _STEPS, (0.0,)),
)


@dataclass
class Events:
    """Rows in the columns of `retry.analytics.schemas`, and the truth.

    Attributes:
      recovered: by team, exception and attempt, letters that recovered there.
      parked: by team and exception, letters that never did.
      until_ms: an end of observation at which all of it is settled.
    """

    letters: list[Row] = field(default_factory=list)
    sent: list[Row] = field(default_factory=list)
    positions: list[Row] = field(default_factory=list)
    recovered: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    parked: Counter[tuple[str, str]] = field(default_factory=Counter)
    until_ms: int = 0


def draw(seed: int, letter: int, attempt: int) -> float:
    """Draw what decides whether an attempt succeeds, in [0, 1)."""
    return xxh3_64_intdigest(b"%d/%d" % (letter, attempt), seed) / _DRAWS


def events(
    count: int, *, seed: int = 0, kinds: Iterable[Kind] = KINDS, since_ms: int = START_MS, over_ms: int = 7 * _DAY_MS,
    prefix: str = "",
) -> Events:  # fmt: skip
    """Make what `count` letters leave, of each kind in turn, that fail for the first time evenly over some time.

    Topics are named after teams, behind `prefix`.
    """
    found, chosen = Events(), list(kinds)
    for n in range(count):
        _life(found, n, chosen[n % len(chosen)], seed, since_ms + n * over_ms // count, prefix)
    found.sent.sort(key=lambda row: row["sent_ms"])
    _place(found)
    found.until_ms = max(row["taken_ms"] for row in found.letters) + max(sum(kind.delays_ms) for kind in chosen) + 2 * SETTLE_MS
    return found


def _life(found: Events, n: int, kind: Kind, seed: int, failed_ms: int, prefix: str) -> None:
    id_, first_ms, most = f"{xxh3_64_intdigest(b'%d' % n, seed):016x}", failed_ms, len(kind.delays_ms)
    for attempt in range(1, most + 2):
        gives_up = attempt > most
        due_ms = None if gives_up else failed_ms + kind.delays_ms[attempt - 1]
        found.letters.append(_letter(kind, n, id_, attempt, first_ms, failed_ms, due_ms, prefix + kind.team))
        if due_ms is None:
            found.parked[kind.team, kind.exception] += 1
            return
        late_ms = int(draw(seed + 1, n, attempt) * 50)
        found.sent.append(make_sent_row(kind, n, id_, attempt, due_ms, due_ms + late_ms, prefix + kind.team))
        if draw(seed, n, attempt) < kind.recovers(attempt, kind.delays_ms[attempt - 1]):
            found.recovered[kind.team, kind.exception, attempt] += 1
            return
        failed_ms = due_ms + late_ms + 100


def _letter(
    kind: Kind, n: int, id_: str, attempt: int, first_ms: int, failed_ms: int, due_ms: int | None, topic: str
) -> Row:
    return {
        "v": 1, "id": id_, "source": f"{topic}.DLT/{n % _PARTITIONS}/{n * 100 + attempt}", "team": kind.team,
        "topic": f"{topic}.DLT", "policy": f"{kind.team}/{topic}.DLT", "attempt": attempt, "exception": kind.exception,
        "first_failed_ms": first_ms, "failed_ms": failed_ms, "taken_ms": failed_ms + 20,
        "decision": "retry" if due_ms else "park", "reason": None if due_ms else "max_attempts", "due_ms": due_ms,
        "target": f"{topic}.retry" if due_ms else f"{topic}.parked", "cause": kind.exception,
        "fingerprint": f"{xxh3_64_intdigest(kind.exception.encode()):016x}", "group": f"{kind.team}-service",
        "delay_ms": due_ms - failed_ms if due_ms else None, "action": None, "action_kind": None,
    }  # fmt: skip


def make_sent_row(kind: Kind, n: int, id_: str, attempt: int, due_ms: int, sent_ms: int, topic: str) -> Row:
    return {
        "topic": f"{topic}.retry", "partition": n % _PARTITIONS, "offset": 0, "id": id_, "attempt": attempt, "due_ms": due_ms,
        "sent_ms": sent_ms, "timestamp_ms": sent_ms, "bytes": 500 + n % 100, "team": kind.team,
    }  # fmt: skip


def _place(found: Events) -> None:
    """Offsets in the order of sending, places in the order of taking in, and a sample of each partition every 10 s."""
    for offset, letter in enumerate(found.letters):
        letter.update(kafka_topic="app-outcomes", kafka_partition=0, kafka_offset=offset)
    ends: Counter[tuple[str, int]] = Counter()
    sampled: dict[tuple[str, int, int], int] = {}
    for retry in found.sent:
        place = retry["topic"], retry["partition"]
        retry["offset"] = ends[place]
        ends[place] += 1
        # A consumer takes 100 ms, and is seen at the next sample.
        at_ms = ((retry["sent_ms"] + 100) // _SAMPLE_MS + 1) * _SAMPLE_MS
        sampled[*place, at_ms] = ends[place]
    for place_offset, ((topic, partition, at_ms), committed) in enumerate(sampled.items()):
        found.positions.append({
            "v": 1, "kind": "position", "group": topic.replace(".retry", "-service"), "topic": topic, "partition": partition,
            "offset": committed, "at_ms": at_ms,
            "kafka_topic": "app-outcomes", "kafka_partition": 0, "kafka_offset": len(found.letters) + place_offset,
        })  # fmt: skip


def produce(producer: Producer, outcomes_topic: str, found: Events) -> None:
    """Write all of it to Kafka; on topics that are new every retry gets the offset that its row says."""
    for letter in found.letters:
        producer.produce(outcomes_topic, orjson.dumps(tell_of(letter)), letter["id"])
        producer.poll(0)
    for position in found.positions:
        producer.produce(outcomes_topic, orjson.dumps(value(position)), "position")
    for retry in found.sent:
        headers = [(name, str(retry[of]).encode()) for name, of in _HEADERS.items()]
        headers.append(("retry-policy", f"{retry['team']}/x".encode()))
        producer.produce(retry["topic"], b"order", "key", retry["partition"], timestamp=retry["sent_ms"], headers=headers)
        producer.poll(0)
    assert producer.flush(120) == 0


def value(row: Mapping[str, Any]) -> Row:
    """Return what is in the record of a letter or a position: all but the place."""
    return {name: each for name, each in row.items() if not name.startswith("kafka_")}


def rows(found: Iterable[Mapping[str, Any]], names: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows as `createDataFrame` takes them."""
    wanted = list(names)
    return (tuple(row[name] for name in wanted) for row in found)
