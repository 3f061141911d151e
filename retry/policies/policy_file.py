"""The policy file → a registry. All of it is checked before any of it is used; each mistake has file, line and path.

A key is looked for in the rule that matches, then in the topic, the team, `defaults`, and the built-in defaults.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from msgspec import UNSET, UnsetType

from backoff import Policy, PolicyInvalid
from backoff.parse import parse_policy
from backoff.rate_limit import Limit
from backoff.recurrence import LATE_MS_MIN, MISFIRES
from retry.dead_letters.failure import FIELDS
from retry.errors import PolicyFileInvalid
from retry.policies import schema
from retry.policies.conditions import conditions
from retry.policies.limits import read_limits, read_span_ms, read_target_limits, read_team_limits
from retry.policies.masks import read_masks
from retry.policies.registry import Registry, make_default_route
from retry.policies.route import RetryPlan, Route, Rule
from retry.policies.schema import Defaults, File, Overrides, Team, Texts, Timing, convert_value
from retry.policies.schema import RuleSection as WrittenRule
from retry.policies.tasks import TEAM, Tasks
from retry.policies.topic_names import find_topic_fault, read_template
from retry.policies.validation import OWN, TopicSection, check_topics, find_target_fault
from retry.policies.yaml_document import NOBODYS, Document, Own, read, suggest_word

# Thousands of topics fit; more is not a policy file.
_BYTES_MAX = 1 << 20


def load(path: Path | str, own: Own = NOBODYS) -> Registry:
    """Load a policy file of the deployment that has its `own` topics; raises PolicyFileInvalid."""
    return load_with_text(path, own)[0]


def load_with_text(path: Path | str, own: Own = NOBODYS) -> tuple[Registry, str]:
    """Load a policy file as `load` does, and return the text that it was made of, too, each line ended by a line feed."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_BYTES_MAX + 1)
        # What is too long may end inside a character: `parse` shall say that it is too long.
        text = content.decode("utf-8-sig", "strict" if len(content) <= _BYTES_MAX else "replace")
    except OSError as error:
        raise PolicyFileInvalid(str(path), 1, "file", f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PolicyFileInvalid(str(path), line, "file", "is not UTF-8 text") from None
    return parse(text, str(path), hashlib.sha256(content).hexdigest(), own), io.StringIO(text, newline=None).read()


def parse(text: str, name: str, digest: str = "", own: Own = NOBODYS) -> Registry:
    """Parse the text of a policy file, which messages call `name`; raises PolicyFileInvalid where it says what must not be done.
    """
    if len(text.encode(errors="replace")) > _BYTES_MAX:
        raise PolicyFileInvalid(name, 1, "file", f"is larger than {_BYTES_MAX:,} bytes")
    document = dataclasses.replace(read(text, name, File.__struct_fields__), own=own)
    file: File = convert_value(document, {} if document.value is None else document.value, File, "")
    teams = {team: _team(document, team, section) for team, section in file.teams.items()}
    routes = Routes(document, file.defaults, teams)
    exact: dict[str, Route] = {}
    patterns: list[tuple[re.Pattern[str], Route]] = []
    for each in check_topics(document, teams):
        if compiled := each.compiled:
            patterns.append((compiled, routes.build_route(each, compiled)))
        else:
            exact[each.written] = routes.build_route(each, None)
    rates, breakers = read_target_limits(document, file.targets)
    registry = Registry(
        MappingProxyType(exact), tuple(patterns), routes.default, MappingProxyType(read_team_limits(document, teams)),
        target_limits=MappingProxyType(rates), breakers=MappingProxyType(breakers), masks=read_masks(document, teams),
        digest=digest,
    )  # fmt: skip
    if file.tasks is not UNSET:
        section, limits = check_tasks(document, file.tasks, registry)
        registry = dataclasses.replace(registry, tasks=section, team_limits={**registry.team_limits, TEAM: limits})
    targets = registry.list_targets()
    for topic in file.targets:
        if topic not in targets:
            suggestion = suggest_word(topic, targets)
            document.reject_path(f"targets.{topic}", f"no letter of any team, and no task, may go there{suggestion}")
    return registry


def _team(document: Document, team: str, section: object) -> Team:
    if not team.strip() or not team.isprintable() or len(team) > 100:
        document.reject_path(f"teams.{team}", "a team's name is 1 to 100 printable characters")
    if team == TEAM:
        document.reject_path(f"teams.{team}", f"{TEAM} is what recurring tasks are called; give the team another name")
    team_section: Team = convert_value(document, section, Team, f"teams.{team}")
    return team_section


# Header names that a team's own code uses for what `Failure` has a word for.

# Names of members of a JSON body, one in another.
_PATH = re.compile(r"\$(\.[A-Za-z0-9_-]{1,100}){1,8}")
AliasNames = dict[str, tuple[str, ...]]


def overlay_aliases(document: Document, written: Mapping[str, object] | UnsetType, path: str, outer: AliasNames) -> AliasNames:
    """Lay the aliases that are written here over those of the levels further out, field by field; raises PolicyFileInvalid."""
    aliases = dict(outer)
    for field, value in ({} if isinstance(written, UnsetType) else written).items():
        at = f"{path}.aliases.{field}"
        if field not in FIELDS:
            document.reject_path(at, f"is nothing that letters tell; known are {', '.join(FIELDS)}{suggest_word(field, FIELDS)}")
        names: str | list[str] = convert_value(document, value, Texts, at)
        aliases[field] = (names,) if isinstance(names, str) else tuple(names)
        for name in aliases[field]:
            if name.startswith("$") and (field != "attempts" or not _PATH.fullmatch(name)):
                document.reject_path(at, f"{name!r} is no path that is read; attempts alone may have one, like $.retryAttempt")
    return aliases


_Value = TypeVar("_Value")


class Routes:
    """Makes the routes of one file; everything raises PolicyFileInvalid where a value cannot be used."""

    def __init__(self, document: Document, defaults: Defaults, teams: Mapping[str, Team]) -> None:
        self._document, self._teams = document, teams
        self.default = make_default_route(self._build_policy(defaults, "defaults", make_default_route().default_plan.policy))
        cancels = _NULL_CANCELS.read(document, defaults.null_value, "defaults", False)
        ordered = defaults.ordered is True
        self._renews = _RENEWS_TIMESTAMPS.read(document, defaults.old_timestamp, "defaults", True)
        self._default_plan = dataclasses.replace(self.default.default_plan, ordered=ordered, null_cancels=cancels)
        aliases = overlay_aliases(document, defaults.aliases, "defaults", {})
        self._group = _resolve_group(document, defaults.group, "defaults", None)
        self._groups = {name: _resolve_group(document, team.group, f"teams.{name}", self._group) for name, team in teams.items()}
        self._aliases = {name: overlay_aliases(document, team.aliases, f"teams.{name}", aliases) for name, team in teams.items()}

    def build_route(self, each: TopicSection, pattern: re.Pattern[str] | None) -> Route:
        """Build the route of one topic of the file; `pattern` is its own, where it is a pattern."""
        name, topic = f"{each.team}/{each.written}", each.topic
        default_plan, cancels, renews = self._default_plan, self._default_plan.null_cancels, self._renews
        for level, path in ((self._teams[each.team], f"teams.{each.team}"), (topic, each.path)):
            cancels = _NULL_CANCELS.read(self._document, level.null_value, path, cancels)
            renews = _RENEWS_TIMESTAMPS.read(self._document, level.old_timestamp, path, renews)
            default_plan = self._overlaid(default_plan, level, path, pattern)
        group = _resolve_group(self._document, topic.group, each.path, self._groups[each.team])
        default_plan = dataclasses.replace(default_plan, name=name, null_cancels=cancels, group=group)
        rules = tuple(self._rule(default_plan, rule, each.path, n, pattern) for n, rule in enumerate(topic.rules))
        allowed = None if topic.allowed_targets is UNSET else frozenset(topic.allowed_targets)
        fixed = {plan.fixed_target for plan in (default_plan, *(rule.plan for rule in rules)) if plan.fixed_target}
        aliases: AliasNames = overlay_aliases(self._document, topic.aliases, each.path, self._aliases[each.team])
        return Route(
            each.team, name, default_plan, rules, allowed, aliases=MappingProxyType(aliases) if aliases else None,
            # What failed in a retry consumer lies in the topic that the retry was sent to.
            origins=frozenset(topic.origins) | fixed | (allowed or frozenset()), renews_timestamps=renews,
            group=group,
        )  # fmt: skip

    def _rule(self, default_plan: RetryPlan, rule: WrittenRule, topic: str, n: int, pattern: re.Pattern[str] | None) -> Rule:
        path = f"{topic}.rules[{n}]"
        matches, plan = conditions(self._document, rule, path), self._overlaid(default_plan, rule, path, pattern)
        return Rule(
            static=tuple(each for each in matches if each.static),
            dynamic=tuple(each for each in matches if not each.static),
            plan=dataclasses.replace(
                plan, name=f"{default_plan.name}#{n + 1}", park=rule.park,
                group=_resolve_group(self._document, rule.group, path, default_plan.group),
            ),
        )  # fmt: skip

    def _overlaid(self, plan: RetryPlan, overrides: Overrides, path: str, pattern: re.Pattern[str] | None) -> RetryPlan:
        retry_to = _or(overrides.retry_to, plan.retry_to)
        said: dict[str, Any] = {
            "policy": self._build_policy(overrides, path, plan.policy), "park_to": _or(overrides.park_to, plan.park_to),
            "retry_to": retry_to, "template": read_template(retry_to, pattern), "ordered": _or(overrides.ordered, plan.ordered),
        }  # fmt: skip
        # Nearly all of thousands of teams say nothing of their own.
        changes = {field: value for field, value in said.items() if value != getattr(plan, field)}
        return dataclasses.replace(plan, **changes) if changes else plan

    def _build_policy(self, timing: Timing, path: str, base: Policy) -> Policy:
        try:
            return parse_policy(timing.timing(), base)
        except PolicyInvalid as invalid:
            self._document.reject_path(f"{path}.{invalid.path}", invalid.reason)


def _or(written: _Value | UnsetType, inherited: _Value) -> _Value:
    return inherited if isinstance(written, UnsetType) else written


class _Choice(NamedTuple):
    """A key of the policy file whose value is one of two words, of which `chosen` is told as true; `reason` says which words."""

    key: str
    chosen: str
    other: str
    reason: str

    def read(self, document: Document, written: object, path: str, inherited: bool) -> bool:
        if written is UNSET:
            return inherited
        if written not in (self.chosen, self.other):
            document.reject_path(f"{path}.{self.key}", self.reason)
        return written == self.chosen


_NULL_CANCELS = _Choice(
    "null_value", "cancel", "retry",
    "is retry or cancel here: what becomes of letters without a value; true and false are conditions, for rules",
)  # fmt: skip
_RENEWS_TIMESTAMPS = _Choice(
    "old_timestamp", "now", "park",
    "is now or park: what becomes of a retry that is too old for its topic (message.timestamp.before.max.ms)",
)  # fmt: skip


def _resolve_group(document: Document, name: str | UnsetType, path: str, inherited: str | None) -> str | None:
    if isinstance(name, UnsetType):
        return inherited
    if not name.strip() or not name.isprintable():
        document.reject_path(f"{path}.group", f"{name!r:.60} is not the name of a consumer group: 1 to 249 printable characters")
    return name


FORMATS = ("auto", "avro", "confluent", "json")


def check_tasks(document: Document, section: object, letters: Registry) -> tuple[Tasks, tuple[Limit, ...]]:
    """Check the section and its limits, beside what the rest of the file says of letters; raises PolicyFileInvalid."""
    written: schema.TasksSection = schema.convert_value(document, section, schema.TasksSection, "tasks")
    _check_topics(document, written, letters)
    for path, target in _list_task_targets(written):
        if fault := find_target_fault(document, target):
            document.reject_path(path, fault)
        if target in written.topics:
            document.reject_path(path, f"{target} is read as definitions of tasks: a task would define tasks")
        if letters.reads_topic(target):
            document.reject_path(path, f"{target} is read as dead letters")
    for path, word, allowed in (("tasks.format", written.format, FORMATS), ("tasks.misfire", written.misfire, MISFIRES)):
        if word not in allowed:
            document.reject_path(path, f"{word!r:.60} is not one of {', '.join(allowed)}{suggest_word(word, allowed)}")
    section = Tasks(
        topics=frozenset(written.topics), allowed=frozenset(written.allowed_targets), format=written.format,
        park_to=None if isinstance(written.park_to, UnsetType) else written.park_to, misfire=written.misfire,
        late_ms=_late_ms(document, written.late), catch_up_max=written.catch_up,
        shortest_ms=max(1, read_span_ms(document, written.shortest, "tasks.shortest")),
    )  # fmt: skip
    return section, read_limits(document, written, "tasks")


def _check_topics(document: Document, written: schema.TasksSection, letters: Registry) -> None:
    for n, topic in enumerate(written.topics):
        path = f"tasks.topics[{n}]"
        if fault := find_topic_fault(topic):
            document.reject_path(path, fault)
        if topic in document.own.unread():
            document.reject_path(path, f"{topic} would be read as definitions of tasks; {OWN}")
        if topic in written.topics[:n]:
            document.reject_path(path, f"{topic} is given twice; keep one")
        if letters.reads_topic(topic):
            document.reject_path(path, f"{topic} is read as dead letters")
        if topic in letters.list_targets():
            document.reject_path(path, f"letters may be sent to {topic}: they would be read as definitions of tasks")


def _list_task_targets(written: schema.TasksSection) -> Iterable[tuple[str, str]]:
    for n, target in enumerate(written.allowed_targets):
        yield f"tasks.allowed_targets[{n}]", target
    if not isinstance(written.park_to, UnsetType):
        yield "tasks.park_to", written.park_to


def _late_ms(document: Document, value: object) -> int:
    if (late_ms := read_span_ms(document, value, "tasks.late")) < LATE_MS_MIN:
        least = f"{LATE_MS_MIN // 1_000}s"
        document.reject_path("tasks.late", f"{value} is shorter than {least}, in which a run may just be under way")
    return late_ms
