"""Reads the definition of a recurring task from plain values, whatever form it came in.

    key         {customerId, taskName}
    definition  {customerId, taskName, frequency, config: {outputTopic, configurations}, data}
    frequency   {frequencyTimeUnit, time}, {cron, timeZone}, or null: once

In JSON `unit` may stand for `frequencyTimeUnit`, and the two names may be left to the key. `configurations` is the consumers'
own, but for these, with which everything can be said in Avro, too:

| configuration | value |
| --- | --- |
| `schedule.cron`, `schedule.timeZone` | in the place of a frequency; without a zone UTC |
| `schedule.start`, `schedule.end` | a time in ISO 8601, by the clocks of the zone where it has no offset |
| `schedule.jitter` | a duration, like 30s: each run is later by up to that |
| `schedule.misfire`, `schedule.late`, `schedule.catchUp` | as the policy file has them, for this task |
| `schedule.paused` | `true` or `false`: while it is true no run is made |
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import cycle
from typing import Any, NamedTuple

import msgspec
import orjson

from backoff import Cron, PolicyInvalid, duration_ms
from backoff.duration import DURATION_MS_MAX
from backoff.errors import quote_value
from backoff.recurrence import LATE_MS_MIN, MISFIRES
from backoff.time_zone import END_MS, find_zone
from retry.errors import TaskInvalid
from retry.scheduling.tasks import formats

UNITS_MS = {"MILLISECONDS": 1, "SECONDS": 1_000, "MINUTES": 60_000, "HOURS": 3_600_000, "DAYS": 86_400_000, "WEEKS": 604_800_000}
CATCH_UP_MAX = 10_000
_PREFIX = "schedule."
_CHARS_MAX = 1_000


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of one task, read and checked.

    Attributes:
      every_ms, cron, zone: as `backoff.recurrence.RecurrencePlan` has them.
      start_ms, end_ms: None where the definition does not say.
      misfire, late_ms, catch_up_max: None where the policy file's count.
    """

    customer_id: str
    task_name: str
    output_topic: str
    every_ms: int = 0
    cron: str = ""
    zone: str = "UTC"
    start_ms: int | None = None
    end_ms: int | None = None
    jitter_ms: int = 0
    misfire: str | None = None
    late_ms: int | None = None
    catch_up_max: int | None = None
    is_paused: bool = False


def parse_key_names(key: Mapping[str, Any]) -> tuple[str, str]:
    """Read customer and task of a key; raises TaskInvalid where one is missing."""
    return _read_string(key, "customerId", "the key's "), _read_string(key, "taskName", "the key's ")


def read(key: Mapping[str, Any], value: Mapping[str, Any]) -> Definition:
    """Read the task that a key and a definition describe; raises TaskInvalid where they ask for nothing, or what cannot be."""
    customer_id, task_name = parse_key_names(key)
    for name, own in (("customerId", customer_id), ("taskName", task_name)):
        if value.get(name) not in (None, own):
            raise TaskInvalid("bad_task", f"{name} is {quote_value(value[name])}, but {own!r:.60} in the key")
    config = value.get("config")
    if not isinstance(config, Mapping):
        raise TaskInvalid("bad_task", f"config is {quote_value(config)}, not a mapping with outputTopic")
    try:
        fields = _frequency(value.get("frequency")) | _merge_configurations(config.get("configurations"))
        topic = _read_string(config, "outputTopic", "config.")
        return Definition(customer_id=customer_id, task_name=task_name, output_topic=topic, **_consistent(fields))
    except PolicyInvalid as invalid:
        raise TaskInvalid("bad_task", str(invalid)) from None


def _frequency(frequency: Any) -> dict[str, Any]:
    if frequency is None:
        return {}
    if not isinstance(frequency, Mapping):
        raise PolicyInvalid("frequency", f"{quote_value(frequency)} is neither a mapping nor null")
    if "cron" in frequency:
        return {"cron": frequency["cron"], "zone": frequency.get("timeZone") or "UTC"}
    unit, time = frequency.get("frequencyTimeUnit", frequency.get("unit")), frequency.get("time")
    if not isinstance(unit, str) or unit not in UNITS_MS:
        raise PolicyInvalid("frequency.frequencyTimeUnit", f"{quote_value(unit)} is not one of {', '.join(UNITS_MS)}")
    if type(time) is not int or not 1 <= time <= DURATION_MS_MAX // UNITS_MS[unit]:
        raise PolicyInvalid("frequency.time", f"{quote_value(time)} is not a whole number from 1 up to ten years of {unit}")
    return {"every_ms": time * UNITS_MS[unit]}


def _merge_configurations(configurations: Any) -> dict[str, Any]:
    if configurations is None:
        return {}
    if not isinstance(configurations, Mapping):
        raise PolicyInvalid("config.configurations", f"{quote_value(configurations)} is neither a mapping nor null")
    fields: dict[str, Any] = {}
    for name, text in configurations.items():
        if name.startswith(_PREFIX):
            if name not in _READERS:
                raise PolicyInvalid(f"config.configurations.{name:.60}", f"no such key; known are {', '.join(_READERS)}")
            field, read_text = _READERS[name]
            if not isinstance(text, str):
                raise PolicyInvalid(name, f"{quote_value(text)} is not text")
            fields[field] = read_text(text, name)
    return fields


def _consistent(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields, checked against each other, with times in milliseconds."""
    zone = fields.get("zone", "UTC")
    if "cron" in fields:
        if "every_ms" in fields:
            raise TaskInvalid("bad_task", "it has both a cron expression and a period; keep one")
        Cron.parse(fields["cron"], zone)
    if fields.get("jitter_ms", 0) >= fields.get("every_ms", DURATION_MS_MAX + 1):
        raise TaskInvalid("bad_task", "schedule.jitter is as long as the period; make it shorter")
    for field in ("start_ms", "end_ms"):
        if field in fields:
            fields[field] = _instant_ms(fields[field], zone)
    return fields


def _instant_ms(text: str, zone: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=find_zone(zone, "schedule.timeZone"))
        since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    except PolicyInvalid:
        raise
    except (ValueError, OverflowError):
        raise TaskInvalid("bad_task", f"{text!r:.60} is not a time, like 2026-05-01T06:00:00+02:00") from None
    instant_ms = since.days * 86_400_000 + since.seconds * 1_000 + since.microseconds // 1_000
    if not 0 <= instant_ms < END_MS:
        raise TaskInvalid("bad_task", f"{text!r:.60} is not between 1970 and 9999")
    return instant_ms


def _read_string(mapping: Mapping[str, Any], name: str, where: str) -> str:
    value = mapping.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= _CHARS_MAX:
        raise TaskInvalid("bad_task", f"{where}{name} is {quote_value(value)}, not text of 1 to {_CHARS_MAX:,} characters")
    return value


def _as_is(text: str, path: str) -> str:  # noqa: ARG001 - one signature for every configuration
    return text


def _misfire(text: str, path: str) -> str:
    if text not in MISFIRES:
        raise PolicyInvalid(path, f"{quote_value(text)} is not one of {', '.join(MISFIRES)}")
    return text


def _late_ms(text: str, path: str) -> int:
    if (late_after_ms := duration_ms(text, path)) < LATE_MS_MIN:
        raise PolicyInvalid(path, f"{text} is shorter than {LATE_MS_MIN // 1_000}s, in which a run may just be under way")
    return late_after_ms


def _count(text: str, path: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= CATCH_UP_MAX or len(text) > 9:
        raise PolicyInvalid(path, f"{quote_value(text)} is not a whole number from 1 to {CATCH_UP_MAX:,}")
    return int(text)


def _flag(text: str, path: str) -> bool:
    if text not in ("true", "false"):
        raise PolicyInvalid(path, f"{quote_value(text)} is neither true nor false")
    return text == "true"


_READERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "schedule.cron": ("cron", _as_is), "schedule.timeZone": ("zone", _as_is),
    "schedule.start": ("start_ms", _as_is), "schedule.end": ("end_ms", _as_is), "schedule.jitter": ("jitter_ms", duration_ms),
    "schedule.misfire": ("misfire", _misfire), "schedule.late": ("late_ms", _late_ms),
    "schedule.catchUp": ("catch_up_max", _count), "schedule.paused": ("is_paused", _flag),
}  # fmt: skip


# Sample definitions: for a first try, and for tests. The same seed always gives the same.

_NAMES = ("send-invoices", "check-balances", "purge-carts", "renew-licences", "poll-sensors", "rotate-keys")
_CRONS = (("*/15 * * * *", "UTC"), ("0 6 * * MON-FRI", "Europe/Berlin"), ("@daily", "America/New_York"))
# Long enough that a sample does not flood anybody.
_SPAN = {"MILLISECONDS": (500, 5_000), "SECONDS": (1, 30), "MINUTES": (1, 30), "HOURS": (1, 12), "DAYS": (1, 14), "WEEKS": (1, 8)}


class Sample(NamedTuple):
    key: dict[str, str]
    definition: dict[str, Any]


def make_samples(seed: int, output_topics: Sequence[str], customers: int = 3) -> Iterator[Sample]:
    """Make definitions without end: the six units in turn, then one by cron, then one that is done once."""
    draw = random.Random(seed)  # noqa: S311 - nothing secret
    for number, kind in enumerate(cycle([*UNITS_MS, "cron", "once"])):
        name = f"{draw.choice(_NAMES)}-{number}"
        key = {"customerId": f"customer-{draw.randrange(customers)}", "taskName": name}
        config: dict[str, Any] = {"outputTopic": draw.choice(output_topics), "configurations": None}
        frequency = None
        if kind == "cron":
            cron, zone = draw.choice(_CRONS)
            config["configurations"] = {"schedule.cron": cron, "schedule.timeZone": zone, "schedule.jitter": "5s"}
        elif kind != "once":
            frequency = {"frequencyTimeUnit": kind, "time": draw.randint(*_SPAN[kind])}
        data = draw.choice([None, {"batch": str(draw.randrange(1_000))}])
        yield Sample(key, {**key, "frequency": frequency, "config": config, "data": data})


def encode_sample(sample: Sample, form: str = formats.AVRO) -> tuple[bytes, bytes]:
    if form == formats.JSON:
        return orjson.dumps(sample.key), orjson.dumps(sample.definition)
    key = formats.encode_avro(sample.key, formats.package_schema(formats.KEY_SCHEMA))
    return key, formats.encode_avro(sample.definition, formats.package_schema(formats.DEFINITION_SCHEMA))
