"""What the policy file says of one dead-letter topic, and which plan that means for a letter. Immutable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from backoff import Policy
from retry.dead_letters.failure import Failure
from retry.policies.topic_names import Template
from retry.record import Header


@dataclass(frozen=True, slots=True)
class RetryPlan:
    """The plan for a letter: when and where to retry it, or where to park it.

    Attributes:
      retry_to: as written: a topic, "origin", or a template; None where no policy is known: it parks.
      park_to: a topic; None for the parking topic of the service.
      name: of the route, and "#<rule number>" from 1 where a rule matched; for the header `retry-policy`.
      null_cancels: whether a letter without a value ends what waits under its key, and is not retried itself.
      group: the consumer group that reads the retries; None where the file does not say.
    """

    policy: Policy
    park: bool
    retry_to: str | None
    park_to: str | None
    name: str
    ordered: bool = False
    null_cancels: bool = False
    template: Template | None = None
    group: str | None = None

    @property
    def waits_by_key(self) -> bool:
        """Whether letters of one key must wait in one shard."""
        return self.ordered or self.null_cancels

    @property
    def fixed_target(self) -> str | None:
        return None if self.template else self.retry_to

    def resolve_target(self, failure: Failure, dead_letters: str) -> str | None:
        """Find the exact topic that a letter of `dead_letters` goes to, for the caller to find allowed; None without."""
        return self.retry_to if self.template is None else self.template.fill_name(failure, dead_letters)


_STATIC = frozenset({"exception", "cause", "stage"})


class MatchInput(NamedTuple):
    """The facts about a letter that rules are matched with.

    Attributes:
      attempt: number of the retry in question, from 1.
      age_ms: since the first failure.
    """

    failure: Failure
    attempt: int
    age_ms: int
    headers: Sequence[Header]
    null_value: bool


@dataclass(frozen=True, slots=True)
class Condition:
    """One question that a rule asks of a letter.

    Attributes:
      key: as in the file; a header's is `headers.<name>`.
      value: what the letter has; None where that is unknown.
    """

    key: str
    written: str
    value: Callable[[MatchInput], Any]
    test: Callable[[Any], bool]

    @property
    def static(self) -> bool:
        """Whether exception, cause and stage alone decide it."""
        return self.key in _STATIC

    def holds(self, match_input: MatchInput) -> bool:
        return self.test(self.value(match_input))


@dataclass(frozen=True, slots=True)
class Rule:
    """A plan for letters of which all conditions hold: `static` ones, by exception, cause and stage alone, and `dynamic` ones."""

    static: tuple[Condition, ...]
    dynamic: tuple[Condition, ...]
    plan: RetryPlan

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return self.static + self.dynamic


# When the cache is full it is emptied, which costs a few microseconds per entry once.
_NAMES_MAX = 1_024
# Names longer than this together are matched anew each time: 1,024 of them must not fill the memory.
_NAMES_CHARS_MAX = 1_000

ExceptionNames = tuple[str | None, str | None, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Route:
    """The policy file's section for one dead-letter topic, or for all topics that a pattern matches.

    Attributes:
      name: "<team>/<dead_letters as written>".
      allowed_targets: where letters may go at all; None for anywhere that the file itself names.
      aliases: header names by field of `Failure`, the first that is there counts; None where there are none.
      origins: topics from which records may be fetched that a pointer letter names.
      group: the consumer group that reads its retries, but for rules that name another; None where the file does not say.
      renews_timestamps: whether a retry whose topic takes no record as old as it is sent with the time of sending.
    """

    team: str
    name: str
    default_plan: RetryPlan
    rules: tuple[Rule, ...] = ()
    allowed_targets: frozenset[str] | None = None
    aliases: Mapping[str, tuple[str, ...]] | None = None
    origins: frozenset[str] = frozenset()
    group: str | None = None
    renews_timestamps: bool = True
    _by_names: dict[ExceptionNames, tuple[tuple[Rule, ...], RetryPlan]] = field(default_factory=dict, repr=False, compare=False)

    def plan(self, failure: Failure, *, attempt: int, age_ms: int, headers: Sequence[Header], null_value: bool) -> RetryPlan:
        """Choose the plan for a letter; the arguments are those of `MatchInput`. Called for every letter, so it stays small."""
        if not self.rules:
            return self.default_plan
        matched = self._by_names.get((failure.exception, failure.thrown, failure.cause, failure.stage))
        maybe, plan = matched if matched is not None else self._find(failure)
        if maybe:
            match_input = MatchInput(failure, attempt, age_ms, headers, null_value)
            for rule in maybe:
                if _meets_conditions(rule.dynamic, match_input):
                    return rule.plan
        return plan

    def plan_by_names(self, failure: Failure) -> RetryPlan | None:
        """Find the plan of every letter that names its failure like this; None where rules ask more of each letter."""
        maybe, plan = self._find(failure)
        return None if maybe else plan

    def plans(self) -> Iterator[RetryPlan]:
        """Yield every retry plan that a letter of this route may get."""
        yield self.default_plan
        yield from (rule.plan for rule in self.rules)

    def list_permitted(self) -> set[str]:
        """List every topic that letters of this route may go to: the allow-list, or else what its plans name."""
        allowed = self.allowed_targets
        retries = self.retry_targets() if allowed is None else allowed
        return {*retries, *(plan.park_to for plan in self.plans() if plan.park_to)}

    def retry_targets(self) -> set[str]:
        plans = [plan for plan in self.plans() if not plan.park]
        fixed = {plan.fixed_target for plan in plans if plan.fixed_target}
        return fixed | self._complete_targets() if any(plan.template for plan in plans) else fixed

    def targets_of(self, plan: RetryPlan) -> set[str]:
        """List the topics that letters with one of its plans may be retried in."""
        fixed = {plan.fixed_target} if plan.fixed_target else set()
        return set() if plan.park else fixed | self._complete_targets() if plan.template else fixed

    def completes(self, target: str | None) -> bool:
        """Whether a letter may say that it is retried in this topic: one of the allow-list where no letters are parked."""
        return target in self._complete_targets()

    def _complete_targets(self) -> frozenset[str]:
        return (self.allowed_targets or frozenset()).difference(plan.park_to or "" for plan in self.plans())

    def _find(self, failure: Failure) -> tuple[tuple[Rule, ...], RetryPlan]:
        """Find the rules that a letter with these names may still match, and its plan where it matches none of them."""
        match_input = MatchInput(failure, 1, 0, (), False)
        maybe, plan = [], self.default_plan
        for rule in self.rules:
            if _meets_conditions(rule.static, match_input):
                if not rule.dynamic:
                    plan = rule.plan
                    break
                maybe.append(rule)
        names = (failure.exception, failure.thrown, failure.cause, failure.stage)
        if sum(len(name or "") for name in names) <= _NAMES_CHARS_MAX:
            if len(self._by_names) >= _NAMES_MAX:
                self._by_names.clear()
            self._by_names[names] = tuple(maybe), plan
        return tuple(maybe), plan


def _meets_conditions(conditions: tuple[Condition, ...], match_input: MatchInput) -> bool:
    # A loop, since a generator costs more than most questions.
    for each in conditions:  # noqa: SIM110
        if not each.holds(match_input):
            return False
    return True
