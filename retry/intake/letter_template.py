"""What letters have in common that come from one partition and tell of the same failure: decided once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from backoff import Policy
from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import COPYING, POINTING
from retry.dead_letters.failure import Failure
from retry.dead_letters.frameworks import HeaderLayout
from retry.delay_queue import entry_keys as keys
from retry.intake.attempts.attempt_counter import AttemptCounter
from retry.intake.batch import make_shared_fields
from retry.policies.route import Route
from retry.record import Header
from retry.telemetry import fingerprint
from retry.telemetry.outcomes import SharedFields


@dataclass(frozen=True, slots=True, eq=False)
class LetterTemplate:
    """The answers that are the same for each of these letters, as long as its past is what it says.

    Attributes:
      copies_timestamp: whether the framework gives them the timestamp of the record that failed.
      points: whether one without key and value only names the record that failed.
      lineage, is_retry: of first failures, see `AttemptCounter`.
      entry_keys: (due times, offsets) → keys.
      shared_by_message: those fields for letters whose exceptions say the same, by message with folded digits, and error codes
        where it has some.
      codes_by_message: the places of these, by message with folded digits.
    """

    layout: HeaderLayout
    topic: str
    team: str
    family: str
    exception: str | None
    cause: str | None
    target: str
    policy: Policy
    attempt: int
    attempt_header: Header
    policy_header: Header
    failed_policy: str
    copies_timestamp: bool
    points: bool
    lineage: Callable[[int], int] | None
    is_retry: bool
    source: bytes
    lane: bytes
    stem: bytes
    entry_keys: Callable[[Iterable[int], Iterable[int]], list[bytes]]
    shared: SharedFields
    shared_by_message: dict[bytes | tuple[bytes, ...] | None, SharedFields] = field(default_factory=dict)
    codes_by_message: dict[bytes, list[slice]] = field(default_factory=dict)

    def with_message(self, message: str | None) -> SharedFields:
        """Return the shared outcome fields of letters whose root cause, or else exception, has this message."""
        return self.shared._replace(fingerprint=fingerprint.compute_fingerprint(self.cause or self.exception, message))


def make_template(
    layout: HeaderLayout, route: Route, topic: str, partition: int, failure: Failure, made: int, failed_policy: str | None,
    attempt_counter: AttemptCounter,
) -> LetterTemplate | None:  # fmt: skip
    """Build the template that letters of one failure share; None where each of the letters needs a closer look."""
    plan = route.plan_by_names(failure)
    if plan is None or plan.park or plan.ordered or plan.null_cancels or plan.retry_to is None:
        return None
    target = plan.resolve_target(failure, topic)
    if target is None or (plan.template is not None and not route.completes(target)):
        return None
    attempt = made + 1
    lane, stem = keys.lane(route.team, topic, target), keys.build_key_stem(topic, partition)
    return LetterTemplate(
        layout=layout,
        topic=topic,
        team=route.team,
        family=failure.family,
        exception=failure.exception,
        cause=failure.cause,
        target=target,
        policy=plan.policy,
        attempt=attempt,
        attempt_header=(names.ATTEMPT, b"%d" % attempt),
        policy_header=(names.POLICY, plan.name.encode()),
        failed_policy=failed_policy or plan.name,
        copies_timestamp=failure.family in COPYING,
        points=failure.family in POINTING,
        lineage=attempt_counter.lineages(failure, route, topic),
        is_retry=attempt_counter.is_retry(failure, route.team),
        source=b"%b/%d/" % (topic.encode(), partition),
        lane=lane,
        stem=stem,
        entry_keys=keys.build_keys(stem, lane),
        shared=make_shared_fields(
            route, topic, partition, failure=failure, plan=plan, attempt=attempt, reason=None, target=target
        ),
    )
