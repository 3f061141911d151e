"""Why entries of a lane may not go now, by what operators have set and by the policy file; None where they may."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from retry import clock
from retry.delay_queue import control_records
from retry.delay_queue.entry_keys import Lane
from retry.delivery.admission import Admission
from retry.kafka.target_probe import TargetProbe
from retry.kafka.topics import TopicNames
from retry.policies.registry import Registry

WhyBlocked = Callable[[Lane], str | None]


def build_policy_check(registry: Registry, own: TopicNames, probe: TargetProbe, controls: Mapping[bytes, bytes]) -> WhyBlocked:
    """Return a check for lanes of retries: a pause, the policy file's allow-list, or a closed target blocks them."""
    admission = Admission(registry, {own.parked, own.discarded}, probe.find_closed, lambda: 1.0)
    return lambda lane: admission.explain_block(lane, controls, clock.wall_ms())


def build_control_check(probe: TargetProbe, controls: Mapping[bytes, bytes]) -> WhyBlocked:
    """Return a check for lanes of named entries, which no policy file mentions: a pause or a closed target blocks them."""

    def why(lane: Lane) -> str | None:
        closed = None if lane.calls else probe.find_closed({lane.destination}).get(lane.destination)
        return control_records.find_pause(controls, *lane, clock.wall_ms()) or closed

    return why


def add_limits_check(blocked: WhyBlocked, registry: Registry, breakers: Mapping[str, str] | None = None) -> WhyBlocked:
    """Extend a check, so that it also says where a rate limit or a circuit breaker may block a lane.

    Args:
      breakers: by target, why its circuit breaker is not closed; None where that is not known of any.
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
