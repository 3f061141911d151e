"""A rule: what it asks of a letter, and the plan for those that are so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from retry.record import Header
from retry.dead_letters.failure import Failure
from retry.policies.plan import Plan

_STATIC = frozenset({"exception", "cause", "stage"})


class Case(NamedTuple):
    """A letter, as far as rules ask.

    Attributes:
      attempt: number of the retry in question, from 1.
      age_ms: since the first failure.
      headers: in the order of the record.
      null_value: whether the record has no value.
    """

    failure: Failure
    attempt: int
    age_ms: int
    headers: Sequence[Header]
    null_value: bool


@dataclass(frozen=True, slots=True)
class Condition:
    """One question to a letter.

    Attributes:
      key: as in the file; a header's is `headers.<name>`.
      written: what the file demands.
      value: what the letter has; None where that is unknown.
      test: whether such a value will do.
    """

    key: str
    written: str
    value: Callable[[Case], Any]
    test: Callable[[Any], bool]

    @property
    def static(self) -> bool:
        """Whether exception, cause and stage alone decide it."""
        return self.key in _STATIC

    def holds(self, case: Case) -> bool:
        """Whether the letter is as demanded."""
        return self.test(self.value(case))


@dataclass(frozen=True, slots=True)
class Rule:
    """A plan for the letters of which all conditions hold.

    Attributes:
      static: the conditions that exception, cause and stage alone decide.
      dynamic: all others.
    """

    static: tuple[Condition, ...]
    dynamic: tuple[Condition, ...]
    plan: Plan

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """All of them, the static ones first."""
        return self.static + self.dynamic
