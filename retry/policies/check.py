"""What a well-written policy file must not do: loops, targets beyond the allow-list, topics owned twice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import UNSET

from retry.policies.document import Document
from retry.policies.names import pattern_body, pattern_fault, topic_fault
from retry.policies.registry import ORIGIN
from retry.policies.shape import Overrides, Pattern, Team, Topic


@dataclass(frozen=True, slots=True)
class Placed:
    """A topic of the file, whose it is and where it stands."""

    team: str
    topic: Topic
    path: str

    @property
    def is_pattern(self) -> bool:
        """Whether it is a pattern of topics."""
        return isinstance(self.topic.dead_letters, Pattern)

    @property
    def written(self) -> str:
        """The topic name or the pattern, as the file has it."""
        dead_letters = self.topic.dead_letters
        return dead_letters.pattern if isinstance(dead_letters, Pattern) else dead_letters


def checked(document: Document, teams: dict[str, Team]) -> list[Placed]:
    """The topics of all teams, in file order.

    Raises:
      PolicyFileInvalid: a name cannot be one, a topic is owned twice, or a target is not to be written to.
    """
    placed = [
        Placed(team, topic, f"teams.{team}.topics[{n}]")
        for team, section in teams.items()
        for n, topic in enumerate(section.topics)
    ]
    _check_sources(document, placed)
    exact = {each.written: each for each in placed if not each.is_pattern}
    patterns = [(re.compile(pattern_body(each.written)), each) for each in placed if each.is_pattern]
    for path, target in _targets(teams, placed):
        if target == ORIGIN:
            document.refuse(path, "origin is a word of retry_to alone; name the topics that are meant")
        if fault := topic_fault(target):
            document.refuse(path, fault)
        if loop := exact.get(target) or next((each for source, each in patterns if source.fullmatch(target)), None):
            document.refuse(path, f"{target} is read as dead letters ({loop.path}): letters would go round for ever")
    for each in placed:
        _check_allowed(document, each, teams[each.team])
    return placed


def _check_sources(document: Document, placed: list[Placed]) -> None:
    owners: dict[str, Placed] = {}
    for each in placed:
        path = f"{each.path}.dead_letters" + ".pattern" * each.is_pattern
        if fault := (pattern_fault if each.is_pattern else topic_fault)(each.written):
            document.refuse(path, fault)
        if owner := owners.get(each.written):
            document.refuse(path, f"{each.written} already belongs to team {owner.team} ({owner.path})")
        owners[each.written] = each


def _targets(teams: dict[str, Team], placed: list[Placed]) -> Iterator[tuple[str, str]]:
    """Every target of the file with its path; `origin` aside, which is known only from a letter."""
    for name, team in teams.items():
        yield from _named(team, f"teams.{name}")
    for each in placed:
        for n, target in enumerate(each.topic.allowed_targets or ()):
            yield f"{each.path}.allowed_targets[{n}]", target
        yield from _named(each.topic, each.path)
        for n, rule in enumerate(each.topic.rules):
            yield from _named(rule, f"{each.path}.rules[{n}]")


def _named(overrides: Overrides, path: str) -> Iterator[tuple[str, str]]:
    if overrides.retry_to not in (UNSET, ORIGIN):
        yield f"{path}.retry_to", str(overrides.retry_to)
    if overrides.park_to is not UNSET:
        yield f"{path}.park_to", str(overrides.park_to)


def _check_allowed(document: Document, each: Placed, team: Team) -> None:
    """Hold every place that letters of one topic may go to against its allow-list."""
    if each.topic.retry_to is UNSET and team.retry_to is UNSET:
        document.refuse(each.path, "retry_to is missing: a topic, or origin")
    allowed = each.topic.allowed_targets
    for path, target, may_be_origin in _used(each, team):
        if may_be_origin and target == ORIGIN:
            if allowed is UNSET:
                document.refuse(path, "origin is named by the letter; say in allowed_targets which topics that may be")
        elif allowed is not UNSET and target not in allowed:
            document.refuse(path, f"{target} is not among allowed_targets of {each.path}")


def _used(each: Placed, team: Team) -> Iterator[tuple[str, str, bool]]:
    """Path and target of what the rules say, and of what the topic says or else its team."""
    levels: list[tuple[Overrides, str]] = [(rule, f"{each.path}.rules[{n}]") for n, rule in enumerate(each.topic.rules)]
    for key in ("retry_to", "park_to"):
        own = getattr(each.topic, key) is not UNSET
        for level, path in [(each.topic, each.path) if own else (team, f"teams.{each.team}"), *levels]:
            if (target := getattr(level, key)) is not UNSET:
                yield f"{path}.{key}", target, key == "retry_to"
