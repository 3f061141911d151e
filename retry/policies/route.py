"""What is known of one dead-letter topic, and the plan that it has for a letter. Immutable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from retry.record import Header
from retry.dead_letters.failure import Failure
from retry.policies.plan import Plan
from retry.policies.rule import Case, Condition, Rule

# When the cache is full it is emptied, which costs a few microseconds per entry once.
_NAMES_MAX = 1_024
# Names longer than this together are matched anew each time: 1,024 of them must not fill the memory.
_NAMES_CHARS_MAX = 1_000

Names = tuple[str | None, str | None, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Route:
    """What is known of one dead-letter topic, or of all that a pattern matches.

    Attributes:
      team: who owns it.
      name: "<team>/<dead_letters as written>".
      usual: the plan where no rule matches.
      rules: the first match wins.
      allowed_targets: where letters may go at all; None for anywhere that the file itself names.
      aliases: header names by field of `Failure`, the first that is there counts; None where there are none.
      origins: topics from which records may be fetched that a pointer letter names.
      group: the consumer group that reads its retries; None where the file does not say.
    """

    team: str
    name: str
    usual: Plan
    rules: tuple[Rule, ...] = ()
    allowed_targets: frozenset[str] | None = None
    aliases: Mapping[str, tuple[str, ...]] | None = None
    origins: frozenset[str] = frozenset()
    group: str | None = None
    _found: dict[Names, tuple[tuple[Rule, ...], Plan]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def retry_to(self) -> str | None:
        """Where letters come back, rules aside, as written."""
        return self.usual.retry_to

    @property
    def park_to(self) -> str | None:
        """Where letters rest, rules aside."""
        return self.usual.park_to

    def plan(
        self, failure: Failure, *, attempt: int, age_ms: int, headers: Sequence[Header], null_value: bool
    ) -> Plan:
        """What to do with a letter; the arguments are those of `Case`. Called for every letter, so it stays small."""
        if not self.rules:
            return self.usual
        found = self._found.get((failure.exception, failure.thrown, failure.cause, failure.stage))
        maybe, plan = found if found is not None else self._find(failure)
        if maybe:
            case = Case(failure, attempt, age_ms, headers, null_value)
            for rule in maybe:
                if _hold(rule.dynamic, case):
                    return rule.plan
        return plan

    def plan_by_names(self, failure: Failure) -> Plan | None:
        """The plan of every letter that names its failure like this; None where that takes a look at each of them."""
        maybe, plan = self._find(failure)
        return None if maybe else plan

    def plans(self) -> Iterator[Plan]:
        """Every plan that a letter of this route may get."""
        yield self.usual
        yield from (rule.plan for rule in self.rules)

    def permitted(self) -> set[str]:
        """Every topic that letters of this route may go to: the allow-list, or else what its plans name."""
        allowed = self.allowed_targets
        retries = self.retry_targets() if allowed is None else allowed
        return {*retries, *(plan.park_to for plan in self.plans() if plan.park_to)}

    def retry_targets(self) -> set[str]:
        """Every topic that its letters may be retried in."""
        plans = [plan for plan in self.plans() if not plan.park]
        fixed = {plan.fixed_target for plan in plans if plan.fixed_target}
        return fixed | (self.allowed_targets or frozenset()) if any(plan.template for plan in plans) else fixed

    def _find(self, failure: Failure) -> tuple[tuple[Rule, ...], Plan]:
        """The rules that a letter with these names may still match, and its plan where it matches none of them."""
        case = Case(failure, 1, 0, (), False)
        maybe, plan = [], self.usual
        for rule in self.rules:
            if _hold(rule.static, case):
                if not rule.dynamic:
                    plan = rule.plan
                    break
                maybe.append(rule)
        names = (failure.exception, failure.thrown, failure.cause, failure.stage)
        if sum(len(name or "") for name in names) <= _NAMES_CHARS_MAX:
            if len(self._found) >= _NAMES_MAX:
                self._found.clear()
            self._found[names] = tuple(maybe), plan
        return tuple(maybe), plan


def _hold(conditions: tuple[Condition, ...], case: Case) -> bool:
    # A loop, since a generator costs more than most questions.
    for each in conditions:  # noqa: SIM110
        if not each.holds(case):
            return False
    return True
