"""What a well-written policy file must not do: loops, targets beyond the allow-list, topics owned twice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from msgspec import UNSET

from retry.policies.schema import Overrides, Pattern, Team, Topic
from retry.policies.topic_names import (
    ORIGIN,
    find_highest_group,
    find_pattern_fault,
    find_template_fault,
    find_topic_fault,
    needs_letter,
    strip_anchors,
)
from retry.policies.yaml_document import Document

OWN = "these are the service's own topics"


@dataclass(frozen=True, slots=True)
class TopicSection:
    team: str
    topic: Topic
    path: str

    @property
    def is_pattern(self) -> bool:
        return isinstance(self.topic.dead_letters, Pattern)

    @property
    def written(self) -> str:
        dead_letters = self.topic.dead_letters
        return dead_letters.pattern if isinstance(dead_letters, Pattern) else dead_letters

    @property
    def compiled(self) -> re.Pattern[str] | None:
        return re.compile(strip_anchors(self.written)) if self.is_pattern else None


def check_topics(document: Document, teams: dict[str, Team]) -> list[TopicSection]:
    """List the topics of all teams, in file order; raises PolicyFileInvalid for a wrong name, owner or target."""
    sections = _sections(teams)
    _check_sources(document, sections)
    exact = {each.written: each for each in sections if not each.is_pattern}
    patterns = [(compiled, each) for each in sections if (compiled := each.compiled)]
    for path, target, may_depend in _iterate_target_paths(teams, sections):
        if may_depend and needs_letter(target):
            if fault := find_template_fault(target):
                document.reject_path(path, fault)
            continue
        _check_name(document, path, target)
        if loop := exact.get(target) or next((each for source, each in patterns if source.fullmatch(target)), None):
            document.reject_path(path, f"{target} is read as dead letters ({loop.path}): letters would go round for ever")
    _check_parking(document, teams)
    for each in sections:
        for n, origin in enumerate(each.topic.origins):
            _check_name(document, f"{each.path}.origins[{n}]", origin)
        _check_allowed(document, each, teams[each.team])
    return sections


def _sections(teams: dict[str, Team]) -> list[TopicSection]:
    return [
        TopicSection(team, topic, f"teams.{team}.topics[{n}]")
        for team, written in teams.items()
        for n, topic in enumerate(written.topics)
    ]


def _check_name(document: Document, path: str, name: str) -> None:
    if name == ORIGIN:
        document.reject_path(path, "origin is a word of retry_to alone; name the topics that are meant")
    if fault := find_target_fault(document, name):
        document.reject_path(path, fault)


def find_target_fault(document: Document, name: str) -> str | None:
    """Say why nothing may be sent to a topic of this name, or None."""
    return find_topic_fault(name) or (f"{name} is no target; {_own(document, name)}" if name in document.own.unread() else None)


def _own(document: Document, name: str) -> str:
    return f"{OWN}, and letters park there where park_to is left out" if name == document.own.parked else OWN


def _check_parking(document: Document, teams: dict[str, Team]) -> None:
    """Refuse a topic in which two teams park: whoever may write there could have operators of one act on letters of the other."""
    owners: dict[str, tuple[str, str]] = {}
    for team, section in teams.items():
        for path, target, _ in _iterate_target_paths({team: section}, _sections({team: section})):
            if not path.endswith(".park_to"):
                continue
            owner, first = owners.setdefault(target, (team, path))
            if owner != team:
                reason = f"{target} is where team {owner} parks ({first}): name another, or leave park_to out"
                document.reject_path(path, f"{reason}, which parks in the service's own parking topic")


def _check_sources(document: Document, sections: list[TopicSection]) -> None:
    owners: dict[str, TopicSection] = {}
    for each in sections:
        path = f"{each.path}.dead_letters" + ".pattern" * each.is_pattern
        if fault := (find_pattern_fault if each.is_pattern else find_topic_fault)(each.written):
            document.reject_path(path, fault)
        if own := sorted(_find_read(each, document.own.unread())):
            document.reject_path(path, f"{' and '.join(own)} would be read as dead letters; {OWN}")
        if owner := owners.get(each.written):
            document.reject_path(path, f"{each.written} already belongs to team {owner.team} ({owner.path})")
        owners[each.written] = each


def _find_read(each: TopicSection, topics: set[str]) -> Iterable[str]:
    return filter(compiled.fullmatch, topics) if (compiled := each.compiled) else {each.written} & topics


def _iterate_target_paths(teams: dict[str, Team], sections: list[TopicSection]) -> Iterator[tuple[str, str, bool]]:
    for name, team in teams.items():
        yield from _iterate_named(team, f"teams.{name}")
    for each in sections:
        for n, target in enumerate(each.topic.allowed_targets or ()):
            yield f"{each.path}.allowed_targets[{n}]", target, False
        yield from _iterate_named(each.topic, each.path)
        for n, rule in enumerate(each.topic.rules):
            yield from _iterate_named(rule, f"{each.path}.rules[{n}]")


def _iterate_named(overrides: Overrides, path: str, *keys: str) -> Iterator[tuple[str, str, bool]]:
    for key in keys or ("retry_to", "park_to"):
        if (target := getattr(overrides, key)) is not UNSET:
            yield f"{path}.{key}", target, key == "retry_to"


def _check_allowed(document: Document, each: TopicSection, team: Team) -> None:
    """Refuse a topic whose letters may go beyond its allow-list."""
    if each.topic.retry_to is UNSET and team.retry_to is UNSET:
        document.reject_path(each.path, "retry_to is missing: a topic, origin or a template")
    allowed = each.topic.allowed_targets
    for path, target, may_depend in _iterate_used(each, team):
        if may_depend and needs_letter(target):
            _check_completed(document, each, path, target)
        elif allowed is not UNSET and target not in allowed:
            document.reject_path(path, f"{target} is not among allowed_targets of {each.path}")


def _check_completed(document: Document, each: TopicSection, path: str, written: str) -> None:
    compiled, needed = each.compiled, find_highest_group(written)
    if needed > (compiled.groups if compiled else 0):
        has = f"has {compiled.groups}" if compiled else "is no pattern"
        document.reject_path(path, f"{{{needed}}} is group {needed} of a pattern, but dead_letters of {each.path} {has}")
    if each.topic.allowed_targets is UNSET:
        document.reject_path(path, f"{written} is completed by the letter; say in allowed_targets which topics that may be")


def _iterate_used(each: TopicSection, team: Team) -> Iterator[tuple[str, str, bool]]:
    levels: list[tuple[Overrides, str]] = [(rule, f"{each.path}.rules[{n}]") for n, rule in enumerate(each.topic.rules)]
    for key in ("retry_to", "park_to"):
        own = getattr(each.topic, key) is not UNSET
        for level, path in [(each.topic, each.path) if own else (team, f"teams.{each.team}"), *levels]:
            yield from _iterate_named(level, path, key)
