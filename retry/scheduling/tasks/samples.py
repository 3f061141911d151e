"""Sample definitions: for a first try, and for tests. The same seed always gives the same."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from retry.scheduling.tasks import avro
from retry.scheduling.tasks.definition import UNITS_MS
from retry.scheduling.tasks.formats import AVRO, JSON

_NAMES = ("send-invoices", "check-balances", "purge-carts", "renew-licences", "poll-sensors", "rotate-keys")
_CRONS = (("*/15 * * * *", "UTC"), ("0 6 * * MON-FRI", "Europe/Berlin"), ("@daily", "America/New_York"))
# Long enough that a sample does not flood anybody.
_TIMES = {
    "MILLISECONDS": (500, 5_000), "SECONDS": (1, 30), "MINUTES": (1, 30), "HOURS": (1, 12), "DAYS": (1, 14), "WEEKS": (1, 8),
}  # fmt: skip


class Sample(NamedTuple):
    """A key and a definition, as plain values."""

    key: dict[str, str]
    definition: dict[str, Any]


def samples(seed: int, output_topics: Sequence[str], customers: int = 3) -> Iterator[Sample]:
    """Definitions without end: the six units in turn, then one by cron, then one that is done once."""
    draw = random.Random(seed)  # noqa: S311 - nothing secret
    kinds = [*UNITS_MS, "cron", "once"]
    number = 0
    while True:
        kind = kinds[number % len(kinds)]
        name = f"{draw.choice(_NAMES)}-{number}"
        key = {"customerId": f"customer-{draw.randrange(customers)}", "taskName": name}
        config: dict[str, Any] = {"outputTopic": draw.choice(output_topics), "configurations": None}
        frequency = None
        if kind == "cron":
            cron, zone = draw.choice(_CRONS)
            config["configurations"] = {"schedule.cron": cron, "schedule.timeZone": zone, "schedule.jitter": "5s"}
        elif kind != "once":
            frequency = {"frequencyTimeUnit": kind, "time": draw.randint(*_TIMES[kind])}
        data = draw.choice([None, {"batch": str(draw.randrange(1_000))}])
        yield Sample(key, {**key, "frequency": frequency, "config": config, "data": data})
        number += 1


def encode_sample(sample: Sample, form: str = AVRO) -> tuple[bytes, bytes]:
    """Key and value of a sample: plain Avro, or JSON."""
    if form == JSON:
        return orjson.dumps(sample.key), orjson.dumps(sample.definition)
    key = avro.encode(sample.key, avro.package_schema(avro.KEY))
    return key, avro.encode(sample.definition, avro.package_schema(avro.DEFINITION))
