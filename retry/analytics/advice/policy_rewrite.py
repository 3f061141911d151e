"""Adds a rule for each advice to a policy file, and keeps the rest of its text, comments included.

The rules of a topic are gone through as a worker does. Before each that such a letter may match, and at the end where none
takes all of them, comes the same rule narrowed to the exception, with `max_attempts`, and for each better delay one with
`attempt` and `backoff`; attempts in a row that have one delay share it. So whatever else decided on these letters goes on doing
so, and other letters see the rules that they saw. `max_attempts` is never raised.
"""

from __future__ import annotations

import dataclasses
import difflib
import glob
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import SingleQuotedScalarString

from backoff import Policy, duration_text
from retry.analytics.advice.choose_attempts import Advice, merge_delays
from retry.analytics.advice.evidence import OTHER, Kind
from retry.dead_letters.failure import Failure
from retry.policies.policy_file import parse
from retry.policies.registry import Registry
from retry.policies.route import Condition, MatchInput, Route

_NAME_CHARS_MAX = 400
# How far names stand in, and the items of a list.
_NESTED = re.compile(r"^teams:[^\n]*\n(?:\s*#[^\n]*\n)*( +)\S", re.MULTILINE)
_LISTED = re.compile(r"^( *)(?:topics|rules):[^\n]*\n(?:\s*#[^\n]*\n)*( *)(- +)\S", re.MULTILINE)
# All defaults.
_BARE = "teams: {t: {topics: [{dead_letters: a, retry_to: b}]}}"
# A policy file has room for 1,000 rules of a topic; people read fewer.
_ADVICES_MAX = 100


class Advised(NamedTuple):
    """An advice, and the letters that it is about.

    Attributes:
      topics: dead-letter topics where such letters were seen.
      is_cause: whether the exception is the root cause, not the exception itself.
      policies: the routes and rules that the advice is for; none for all that such letters match.
    """

    team: str
    exception: str
    topics: tuple[str, ...]
    is_cause: bool
    advice: Advice
    policies: tuple[str, ...] = ()


def list_advice(advice: Mapping[Kind, Advice], is_cause: Mapping[tuple[str, str, str | None], bool]) -> list[Advised]:
    """List the advice of each kind for its topics; where a topic's letters of one exception differ by policy, for its policies
    alone. `is_cause` tells by team, topic and exception, whether this is always the root cause."""
    seen = Counter((kind.team, kind.exception, topic) for kind in advice for topic in kind.topics)
    return [
        Advised(
            kind.team, kind.exception, topics,
            all(is_cause[kind.team, topic, kind.exception] for topic in topics), each, kind.policies if is_split else (),
        )
        for kind, each in advice.items() if kind.exception not in (None, OTHER)
        for is_split in (False, True)
        if (topics := tuple(t for t in kind.topics if (seen[kind.team, kind.exception, t] > 1) == is_split))
    ]  # fmt: skip


def add_rules(text: str, name: str, advised: Iterable[Advised]) -> tuple[str, int]:
    """Add the rules to the text of a policy file; returns it and how many there are.

    Where a topic gets more than 100 advices, those that save most. A topic that the file gives to another team is left alone, and
    so is an exception whose name a rule cannot hold.

    Raises:
      PolicyFileInvalid: the text is no policy file, or would be none with the rules.
    """
    registry = parse(text, name)
    yaml = _yaml(text)
    document = yaml.load(text)
    changing = [each for each in advised if each.advice.changes and is_writable(each)]
    changing.sort(key=lambda one: (-one.advice.saved, one.team, one.exception))
    teams = (document or {}).get("teams", {})
    added = sum(_amend_team(section["topics"], registry, team, changing) for team, section in teams.items())
    out = io.StringIO()
    yaml.dump(document, out)
    parse(out.getvalue(), name)
    return out.getvalue(), added


def diff_policies(text: str, name: str, advised: Iterable[Advised]) -> list[str]:
    """Return a unified diff of the policy file and the one with the rules, none where they are equal; raises as `add_rules`."""
    changed, _ = add_rules(text, name, advised)
    return list(difflib.unified_diff(text.splitlines(), changed.splitlines(), name, name, lineterm="", n=2))


def list_amended_lines(text: str, name: str, advised: Advised) -> list[str]:
    """Return the lines of the topics that the rules of an advice change, as they stand in the new file: YAML by itself, and in
    the file it takes the place of what was there. Empty where the file stays as it is; raises as `add_rules`."""
    changed, added = add_rules(text, name, [advised])
    if not added:
        return []
    before, after = (_yaml(each).load(each)["teams"][advised.team]["topics"] for each in (text, changed))
    rows, found = changed.splitlines(), list[str]()
    for index in (n for n, (one, other) in enumerate(zip(before, after, strict=True)) if one != other):
        found += _list_lines_of(rows, *after.lc.item(index))
    # What is written within brackets over several lines cannot be taken out of them.
    is_whole = _yaml("").load("\n".join(found)) == [each for one, each in zip(before, after, strict=True) if one != each]
    return found if is_whole else rows


def _list_lines_of(rows: Sequence[str], first: int, column: int) -> Iterator[str]:
    """List the lines of an item: those that follow its first, up to one that stands as far out as the dash before it."""
    until = first + 1
    while until < len(rows) and (not rows[until].strip() or len(rows[until]) - len(rows[until].lstrip()) >= column):
        until += 1
    return iter("\n".join(rows[first:until]).rstrip().split("\n"))


def is_writable(advised: Advised) -> bool:
    return len(advised.exception) <= _NAME_CHARS_MAX and advised.exception.isprintable()


def rule_lines(advised: Advised) -> list[str]:
    """Write the rules of an advice as lines of YAML, as `add_rules` does for a topic that has none yet."""
    (usual,) = parse(_BARE, "").list_routes()
    policy = dataclasses.replace(usual.default_plan.policy, max_attempts=advised.advice.attempts_now)
    out, yaml = io.StringIO(), _yaml("")
    yaml.dump(CommentedSeq(_narrow_rules({}, [], policy, advised)), out)
    return [line.removeprefix("  ") for line in out.getvalue().splitlines()]


def _yaml(text: str) -> YAML:
    """Make a reader and writer that writes as this file is written."""
    yaml = YAML()
    yaml.preserve_quotes = True
    # Each rule is written in full, also beside the one that it was made of: policy files have no aliases.
    yaml.representer.ignore_aliases = lambda *_: True
    yaml.width = 4_096
    nested, listed = _NESTED.search(text), _LISTED.search(text)
    offset = len(listed[2]) - len(listed[1]) if listed else 2
    yaml.indent(mapping=len(nested[1]) if nested else 2, sequence=offset + (len(listed[3]) if listed else 2), offset=offset)
    return yaml


def _amend_team(topics: Iterable[Any], registry: Registry, team: str, changing: Iterable[Advised]) -> int:
    own = [each for each in changing if each.team == team]
    routes = {each.name: each for each in registry.list_routes()}
    added = 0
    for topic in topics:
        route = routes[f"{team}/{_format_topic(topic)}"]
        here = [each for each in own if any(registry.route(name) is route for name in each.topics)][:_ADVICES_MAX]
        # An exception may be the wrapper of another's root cause: whoever names the cause comes first.
        added += _amend_topic(topic, route, sorted(here, key=lambda one: not one.is_cause))
    return added


def _format_topic(topic: Mapping[str, Any]) -> str:
    named = topic["dead_letters"]
    return str(named["pattern"] if isinstance(named, Mapping) else named)


def _amend_topic(topic: Any, route: Route, advised: Iterable[Advised]) -> int:
    present = topic.get("rules", [])
    before: dict[int, list[CommentedMap]] = {}
    for each in advised:
        for index, rules in _narrowed_rules(present, route, each):
            before.setdefault(index, []).extend(rules)
    if any(before.values()) and not present:
        topic["rules"] = present = CommentedSeq()
    # From the end, so that the positions stay what they are.
    for index in sorted(before, reverse=True):
        for rule in reversed(before[index]):
            present.insert(index, rule)
    return sum(map(len, before.values()))


def _narrowed_rules(present: Any, route: Route, advised: Advised) -> Iterator[tuple[int, list[CommentedMap]]]:
    """Yield the narrowed rules to insert, with the index of the present rule before which they go."""
    case = MatchInput(_failure(advised), 1, 0, (), False)
    for index, (written, rule) in enumerate(zip(present, route.rules, strict=True)):
        if not all(each.holds(case) for each in rule.conditions if each.key in ("exception", "cause")):
            continue
        rest = [each for each in rule.conditions if each.key not in ("exception", "cause")]
        if not rule.plan.park and _is_meant(advised, rule.plan.name):
            yield index, _narrow_rules(written, rest, rule.plan.policy, advised)
        if not rest:
            return
    if _is_meant(advised, route.default_plan.name):
        yield len(present), _narrow_rules({}, [], route.default_plan.policy, advised)


def _is_meant(advised: Advised, policy: str) -> bool:
    return not advised.policies or policy in advised.policies


def _failure(advised: Advised) -> Failure:
    return Failure(exception=advised.exception, cause=advised.exception if advised.is_cause else None)


def _narrow_rules(written: Mapping[str, Any], rest: list[Condition], policy: Policy, advised: Advised) -> list[CommentedMap]:
    advice = advised.advice
    attempts = min(advice.attempts, policy.max_attempts)
    fewer = {"max_attempts": attempts} if attempts < policy.max_attempts else {}
    on_attempt = next((each for each in rest if each.key == "attempt"), None)
    here = {n: ms for n, ms in advice.delays_ms.items() if n <= attempts and (on_attempt is None or on_attempt.test(n))}
    rules = []
    for first, last, delay_ms in merge_delays(here):
        # Full jitter would draw anything from 0 on, and that is not what was observed.
        timing = {"backoff": _constant(delay_ms, policy.max_delay_ms), "jitter": "proportional"}
        rules.append(_rule(written, advised, {"attempt": first if first == last else f"{first}..{last}"}, timing | fewer))
    if fewer:
        rules.append(_rule(written, advised, {}, fewer))
    return rules


def _constant(delay_ms: int, max_delay_ms: int) -> CommentedMap:
    # Calendars move retries beyond the longest delay, and so some were observed there.
    more = {"max_delay": duration_text(delay_ms)} if delay_ms > max_delay_ms else {}
    return _flow(kind="constant", delay=duration_text(delay_ms), **more)


def _rule(written: Mapping[str, Any], advised: Advised, asked: Mapping[str, Any], settings: Mapping[str, Any]) -> CommentedMap:
    # Of the exact name, whatever stands in it.
    name = SingleQuotedScalarString(glob.escape(advised.exception))
    other_keys = {key: value for key, value in written.items() if key not in ("exception", "cause")}
    return _flow(**{"cause" if advised.is_cause else "exception": name}, **{**other_keys, **asked, **settings})


def _flow(**keys: Any) -> CommentedMap:
    made = CommentedMap(keys)
    made.fa.set_flow_style()
    return made
