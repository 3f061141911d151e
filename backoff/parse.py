"""Plain mappings, as a YAML or JSON reader gives them, to curves and policies. Every mistake names its place.

>>> parse_policy({"backoff": {"kind": "constant", "delay": "5s"}, "jitter": "none"}).curve(1)
5000
>>> parse_policy({"backoff": {"kind": "constant", "delay": "5"}})
Traceback (most recent call last):
backoff.errors.PolicyInvalid: backoff.delay: '5' is not a duration; write it like 250ms, 30s, 5m, 2h, 3d or 1h30m
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from backoff import calendar
from backoff.duration import duration_ms, duration_text
from backoff.errors import PolicyInvalid, quote_value
from backoff.policy import JITTERS, Constant, Exponential, Jitter, Linear, Policy, Steps, full
from backoff.rate_limit import parse_rate

__all__ = ["DEFAULT", "duration_ms", "duration_text", "parse_curve", "parse_policy", "parse_rate"]

DEFAULT = Policy(
    curve=Exponential(delay_ms=10_000, factor=2.0, max_delay_ms=3_600_000),
    jitter=full,
    max_attempts=8,
    max_age_ms=259_200_000,
    max_delay_ms=3_600_000,
    honour_retry_at=True,
)
# Beyond this even the shortest delay is at any sensible cap after a few retries.
_FACTOR_MAX = 1_000
_STEPS_MAX = 1_000
_ATTEMPTS_MAX = 1_000_000


def parse_policy(mapping: Mapping[str, object], base: Policy = DEFAULT) -> Policy:
    """Return the base policy with what a mapping says instead; raises PolicyInvalid where a key is unknown or unusable.

    Keys: backoff, jitter, max_attempts (0 to 1,000,000), max_age, honour_retry_at, quiet_hours, align. A `backoff`
    replaces the one of the base as a whole; only `max_delay`, being a bound, is kept where the new one names none.
    """
    if not mapping:
        return base
    changes: dict[str, Any] = {}
    for key, value in mapping.items():
        if key == "backoff":
            shape = _backoff(value, base.max_delay_ms)
            changes |= {"curve": shape, "max_delay_ms": shape.max_delay_ms}
        elif key in _PLAIN:
            field, read = _PLAIN[key]
            changes[field] = read(value, key)
        elif key not in calendar.KEYS:
            raise PolicyInvalid(key, f"no such key; known are {', '.join(('backoff', *_PLAIN, *calendar.KEYS))}")
    return replace(base, calendar=calendar.parse_calendar(mapping, base.calendar), **changes)


def parse_curve(
    mapping: Mapping[str, object], max_delay_ms: int = DEFAULT.max_delay_ms
) -> Constant | Linear | Exponential | Steps:
    """Parse a backoff curve from a mapping like `{"kind": "linear", "delay": "1s", "step": "2s", "max_delay": "1m"}`.

    `max_delay_ms` stands in where it has no `max_delay`. Raises PolicyInvalid where a key is missing, unknown, or cannot be used.
    """
    kind = mapping.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise PolicyInvalid("kind", f"{quote_value(kind)} is not one of {', '.join(_KINDS)}")
    build, keys = _KINDS[kind]
    for key in mapping:
        if key not in ("kind", "max_delay", *keys):
            raise PolicyInvalid(str(key), f"no such key; {kind} has {', '.join(keys)} and max_delay")
    if missing := [key for key in keys if key not in mapping]:
        raise PolicyInvalid(missing[0], f"is missing; {kind} needs {' and '.join(keys)}")
    if "max_delay" in mapping:
        max_delay_ms = duration_ms(mapping["max_delay"], "max_delay")
    return build(*(_READERS[key](mapping[key], key, max_delay_ms) for key in keys), max_delay_ms)


def _backoff(value: object, max_delay_ms: int) -> Constant | Linear | Exponential | Steps:
    if not isinstance(value, Mapping):
        raise PolicyInvalid("backoff", f"{quote_value(value)} is not a mapping like {{kind: constant, delay: 30s}}")
    try:
        return parse_curve(value, max_delay_ms)
    except PolicyInvalid as invalid:
        raise invalid.with_prefix("backoff") from None


def _delay_ms(value: object, path: str, max_delay_ms: int) -> int:
    delay_ms = duration_ms(value, path)
    # To cut silently what someone wrote out would surprise them at the worst time.
    if delay_ms > max_delay_ms:
        raise PolicyInvalid(path, f"{value} is above max_delay, {duration_text(max_delay_ms)}; raise max_delay too")
    return delay_ms


def _step_ms(value: object, path: str, max_delay_ms: int) -> int:  # noqa: ARG001 - one signature for every reader
    return duration_ms(value, path)


def _factor(value: object, path: str, max_delay_ms: int) -> float:  # noqa: ARG001 - as above
    # Written so that nan is refused, and bool, which is an int.
    if type(value) not in (int, float) or not 1 <= value <= _FACTOR_MAX:  # type: ignore[operator]
        raise PolicyInvalid(path, f"{quote_value(value)} is not a number from 1 to {_FACTOR_MAX:,}, like 2 or 1.5")
    return float(value)  # type: ignore[arg-type]


def _delays_ms(value: object, path: str, max_delay_ms: int) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= _STEPS_MAX:
        raise PolicyInvalid(path, f"{quote_value(value)} is not a list of 1 to {_STEPS_MAX:,} durations, like [1m, 5m, 30m]")
    return tuple(_delay_ms(each, f"{path}[{n}]", max_delay_ms) for n, each in enumerate(value))


def _jitter(value: object, path: str) -> Jitter:
    if not isinstance(value, str) or value not in JITTERS:
        raise PolicyInvalid(path, f"{quote_value(value)} is not one of {', '.join(JITTERS)}")
    return JITTERS[value]


def _parse_attempts(value: object, path: str) -> int:
    if type(value) is not int or not 0 <= value <= _ATTEMPTS_MAX:
        raise PolicyInvalid(path, f"{quote_value(value)} is not a whole number from 0 to {_ATTEMPTS_MAX:,}")
    return value


def _flag(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise PolicyInvalid(path, f"{quote_value(value)} is not true or false")
    return value


_READERS: dict[str, Callable[[object, str, int], Any]] = {
    "delay": _delay_ms,
    "step": _step_ms,
    "factor": _factor,
    "delays": _delays_ms,
}
_KINDS: dict[str, tuple[Callable[..., Constant | Linear | Exponential | Steps], tuple[str, ...]]] = {
    "constant": (Constant, ("delay",)),
    "linear": (Linear, ("delay", "step")),
    "exponential": (Exponential, ("delay", "factor")),
    "steps": (Steps, ("delays",)),
}
_PLAIN: dict[str, tuple[str, Callable[[object, str], object]]] = {
    "jitter": ("jitter", _jitter),
    "max_attempts": ("max_attempts", _parse_attempts),
    "max_age": ("max_age_ms", duration_ms),
    "honour_retry_at": ("honour_retry_at", _flag),
}
