"""Why entries of a lane may not go now, by what operators have set and by the policy file; None where they may."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from retry import clock
from retry.delay_queue import control_records
from retry.delay_queue.lane import Lane
from retry.delivery.admission import Admission
from retry.kafka.target_probe import TargetProbe
from retry.kafka.topics import TopicNames
from retry.policies.registry import Registry

WhyBlocked = Callable[[Lane], str | None]


def by_policies(registry: Registry, own: TopicNames, probe: TargetProbe, controls: Mapping[bytes, bytes]) -> WhyBlocked:
    """Of retries: a pause, a closed target, or an allow-list."""
    admission = Admission(registry, {own.parked, own.discarded}, probe.closed, lambda: 1.0)
    return lambda lane: admission.why_not(lane, controls, clock.wall_ms())


def by_controls(probe: TargetProbe, controls: Mapping[bytes, bytes]) -> WhyBlocked:
    """Of entries with a name, which no policy file mentions: a pause, or a closed target."""

    def why(lane: Lane) -> str | None:
        closed = None if lane.calls else probe.closed({lane.destination}).get(lane.destination)
        return control_records.paused(controls, *lane, clock.wall_ms()) or closed

    return why


def or_maybe_limited(blocked: WhyBlocked, registry: Registry, breakers: Mapping[str, str] | None = None) -> WhyBlocked:
    """The same, and of lanes with a rate limit or a circuit breaker that these may block them.

    Args:
      breakers: why those that are not closed are not, by target; None where that is not known.
    """
    limited = {*registry.target_limits, *(registry.breakers if breakers is None else ())}
    of_target = "a limit or breaker" if breakers is None else "a limit"

    def why(lane: Lane) -> str | None:
        if reason := blocked(lane) or (breakers or {}).get(lane.destination):
            return reason
        if registry.team_limits.get(lane.team) or lane.destination in limited:
            return f"maybe by a limit of {lane.team}, or {of_target} of {lane.destination}"
        return f"maybe by a limit or breaker of {lane.destination}" if lane.calls else None

    return why
