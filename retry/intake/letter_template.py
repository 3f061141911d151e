"""What letters have in common that come from one partition and tell of the same failure: decided once for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from backoff import Policy
from retry.dead_letters.dead_letter import COPYING
from retry.dead_letters.failure import Failure
from retry.delay_queue import entry_keys
from retry.intake.attempts.attempt_counter import AttemptCounter
from retry.intake.batch import shared_fields
from retry.policies.route import Route
from retry.telemetry import fingerprint
from retry.telemetry.outcomes import SharedFields


@dataclass(frozen=True, slots=True, eq=False)
class LetterTemplate:
    """The answers that are the same for each of these letters where it fails for the first time.

    Attributes:
      family, exception, cause: of the failure.
      target: the topic that they are retried in.
      copies_timestamp: whether the framework gives them the timestamp of the record that failed.
      lineage, is_retry: see `AttemptCounter`.
      source: coordinates, offset aside.
      entry_key: (due time, offset) → key.
      shared: what is told of one of them.
      shared_by_message: what is told of those whose exceptions said this, by `fingerprint.alike`.
    """

    team: str
    family: str
    exception: str | None
    cause: str | None
    target: str
    policy: Policy
    policy_name: bytes
    copies_timestamp: bool
    lineage: Callable[[int], int] | None
    is_retry: bool
    source: bytes
    entry_key: Callable[[int, int], bytes]
    shared: SharedFields
    shared_by_message: dict[bytes | None, SharedFields] = field(default_factory=dict)

    def with_message(self, message: str | None) -> SharedFields:
        """What is told of letters whose exceptions said this."""
        return self.shared._replace(fingerprint=fingerprint.of(self.exception, self.cause, message))


def template(
    route: Route, topic: str, partition: int, failure: Failure, attempt_counter: AttemptCounter
) -> LetterTemplate | None:
    """The template of letters of a failure; None where each of them needs a closer look."""
    plan = route.plan_by_names(failure)
    if plan is None or plan.park or plan.ordered or plan.null_cancels or plan.retry_to is None:
        return None
    target = plan.target(failure, topic)
    if target is None or (plan.template is not None and not route.completes(target)):
        return None
    return LetterTemplate(
        route.team,
        failure.family,
        failure.exception,
        failure.cause,
        target,
        plan.policy,
        plan.name.encode(),
        failure.family in COPYING,
        attempt_counter.lineages(failure),
        attempt_counter.is_retry(failure),
        b"%b/%d/" % (topic.encode(), partition),
        entry_keys.keys_of(entry_keys.key_stem(topic, partition), entry_keys.lane(route.team, topic, target)),
        shared_fields(route, topic, partition, failure, plan.name, 1, None, target),
    )
