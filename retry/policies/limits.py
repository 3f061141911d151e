"""The rate limits of teams and targets, and the circuit breakers of targets, as the policy file has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import UNSET, UnsetType

from backoff import PolicyInvalid, duration_ms
from backoff.rate_limit import Limit, parse_rate
from retry.policies import schema
from retry.policies.yaml_document import Document


@dataclass(frozen=True, slots=True)
class CircuitBreakerLimits:
    """After `failures` failures within `within_ms` nothing is sent for `open_for_ms`. All at least 1."""

    failures: int
    within_ms: int
    open_for_ms: int


def read_team_limits(document: Document, teams: Mapping[str, schema.Team]) -> dict[str, tuple[Limit, ...]]:
    """Read `rate` and `budget` of each team; teams without are left out. Raises PolicyFileInvalid where one is not a rate."""
    limits = {name: read_limits(document, team, f"teams.{name}") for name, team in teams.items()}
    return {name: limits for name, limits in limits.items() if limits}


def read_limits(document: Document, section: schema.Team | schema.TasksSection, path: str) -> tuple[Limit, ...]:
    """Read `rate` and `budget` of one section, as far as it has them; raises PolicyFileInvalid where one is not a rate."""
    written = (("rate", section.rate), ("budget", section.budget))
    return tuple(_limit(document, value, f"{path}.{key}") for key, value in written if value is not UNSET)


def read_target_limits(
    document: Document, targets: Mapping[str, object]
) -> tuple[dict[str, Limit], dict[str, CircuitBreakerLimits]]:
    """Read rates and breakers of topics from the section `targets`; raises PolicyFileInvalid where a topic has neither."""
    rates: dict[str, Limit] = {}
    breakers: dict[str, CircuitBreakerLimits] = {}
    for topic, section in targets.items():
        path = f"targets.{topic}"
        written: schema.TargetLimits = schema.convert_value(document, section, schema.TargetLimits, path)
        if written.rate is UNSET and written.breaker is UNSET:
            document.reject_path(path, "limits nothing; give it rate, breaker or both")
        if written.rate is not UNSET:
            rates[topic] = _limit(document, written.rate, f"{path}.rate")
        if not isinstance(written.breaker, UnsetType):
            breakers[topic] = _breaker(document, written.breaker, f"{path}.breaker")
    return rates, breakers


def _limit(document: Document, value: object, path: str) -> Limit:
    try:
        return parse_rate(value, path)
    except PolicyInvalid as invalid:
        document.reject_path(path, invalid.reason)


def _breaker(document: Document, written: schema.CircuitBreakerSection, path: str) -> CircuitBreakerLimits:
    spans = {key: read_span_ms(document, getattr(written, key), f"{path}.{key}") for key in ("within", "open_for")}
    for key, ms in spans.items():
        if not ms:
            document.reject_path(f"{path}.{key}", f"{getattr(written, key)} is no time at all")
    return CircuitBreakerLimits(written.failures, spans["within"], spans["open_for"])


def read_span_ms(document: Document, value: object, path: str) -> int:
    """Read a duration that stands at this path; raises PolicyFileInvalid where it is none."""
    try:
        return duration_ms(value, path)
    except PolicyInvalid as invalid:
        document.reject_path(path, invalid.reason)
