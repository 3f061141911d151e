"""The file of `RETRY_CONSOLE_NOTIFICATIONS` → rules and targets. All of it is checked before any of it is used.

It is a file of its own, not a part of the policy file: workers need none of it, and a slip in a rule keeps no letter from being
retried. Secrets are not in it: each target names a file that holds its URL.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import orjson
from msgspec import UNSET, Meta, UnsetType

from backoff.calendar import Calendar, parse_calendar
from backoff.errors import PolicyInvalid
from retry.console.reading.filter_sql import asks_payload
from retry.console.rows import Scope
from retry.errors import FilterInvalid, NotificationFailed, PolicyFileInvalid, SettingsInvalid
from retry.operations.letter_filter.parse import parse as parse_filter
from retry.policies.schema import convert_value
from retry.policies.yaml_document import Document, read, suggest_word
from retry.printable import escape_unprintable
from retry.reloaded_file import ReloadedFile
from retry.settings import Settings

SETTING = "RETRY_CONSOLE_NOTIFICATIONS"
NEW_FAILURE, FAILED_AGAIN, ON_HOLD, OVERDUE, NEAR_RETENTION = EVENTS = (
    "new_failure", "failed_again", "on_hold", "overdue", "near_retention",
)  # fmt: skip
# What has a failure, so that a filter can choose by it.
OF_FAILURES = frozenset({NEW_FAILURE, FAILED_AGAIN})
_EventName = Literal["new_failure", "failed_again", "on_hold", "overdue", "near_retention"]
_Text = Annotated[str, Meta(min_length=1, max_length=500)]
_NAME = re.compile(r"[A-Za-z0-9._-]{1,60}")
_RULES_MAX = 500


class TargetSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One target of messages: the file that holds an Apprise URL, or that of a URL which is called with signed JSON."""

    apprise: _Text | UnsetType = UNSET
    webhook: _Text | UnsetType = UNSET


class RuleSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events of which teams go to which targets, and when."""

    to: _Text | Annotated[list[_Text], Meta(min_length=1, max_length=20)]
    teams: Annotated[list[_Text], Meta(min_length=1, max_length=1_000)] | UnsetType = UNSET
    events: Annotated[list[_EventName], Meta(min_length=1)] | UnsetType = UNSET
    filter: str = ""
    at_least: Annotated[int, Meta(ge=1, le=10_000)] = 1
    quiet_hours: object = UNSET


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file. What has names of its own is read one by one, so that a message can tell the name."""

    targets: dict[str, object] = {}
    rules: Annotated[list[object], Meta(max_length=_RULES_MAX)] = []


_SHAPES = (File, TargetSection, RuleSection)
for _shape in _SHAPES:
    msgspec.json.Decoder(_shape)


class Target(NamedTuple):
    """One place that messages go to; `file` holds its URL, which is a secret."""

    name: str
    is_webhook: bool
    file: Path


class Rule(NamedTuple):
    """The events that one target is told of, of `teams` or, where None, of every team.

    Attributes:
      id: the same as long as the rule chooses the same events; quiet hours and the least number may change.
      quiet_hours: when nothing is told; what still matters then is told afterwards.
    """

    id: str
    target: str
    teams: Scope
    events: frozenset[str]
    filter: str
    at_least: int
    quiet_hours: Calendar | None

    def is_quiet(self, now_ms: int) -> bool:
        return self.quiet_hours is not None and self.quiet_hours(now_ms) > now_ms


class RuleFile(NamedTuple):
    targets: Mapping[str, Target]
    rules: tuple[Rule, ...]


def parse(text: str, name: str) -> RuleFile:
    """Parse the text of the file, which messages call `name`; raises PolicyFileInvalid where it cannot be used."""
    document = read(text, name, File.__struct_fields__)
    file: File = convert_value(document, {} if document.value is None else document.value, File, "", _SHAPES)
    targets = {target: _target(document, target, section) for target, section in file.targets.items()}
    rules = [rule for n, section in enumerate(file.rules) for rule in _rules(document, f"rules[{n}]", section, targets)]
    return RuleFile(targets, tuple({(rule.id, rule.at_least, repr(rule.quiet_hours)): rule for rule in rules}.values()))


def _target(document: Document, name: str, section: object) -> Target:
    path = f"targets.{name}"
    if not _NAME.fullmatch(name):
        document.reject_path(path, "a target's name is 1 to 60 letters, digits, . _ -")
    found: TargetSection = convert_value(document, section, TargetSection, path, _SHAPES)
    files = [each for each in (found.apprise, found.webhook) if each is not UNSET]
    if len(files) != 1:
        document.reject_path(path, "give one of apprise and webhook: the path of the file that holds the URL")
    return Target(name, found.webhook is not UNSET, Path(str(files[0])))


def _rules(document: Document, path: str, section: object, targets: Mapping[str, Target]) -> list[Rule]:
    found: RuleSection = convert_value(document, section, RuleSection, path, _SHAPES)
    events = frozenset(EVENTS if found.events is UNSET else found.events)
    teams = None if found.teams is UNSET else frozenset(found.teams)
    if found.filter:
        _check_filter(document, f"{path}.filter", found.filter, events)
    quiet_hours = None
    if found.quiet_hours is not UNSET:
        try:
            quiet_hours = parse_calendar({"quiet_hours": found.quiet_hours})
        except PolicyInvalid as invalid:
            document.reject_path(f"{path}.{invalid.path}", invalid.reason)
    names = [found.to] if isinstance(found.to, str) else found.to
    for name in names:
        if name not in targets:
            document.reject_path(f"{path}.to", f"there is no target {name}{suggest_word(name, targets)}")
    chosen = teams and sorted(teams), sorted(events), found.filter
    return [
        Rule(_hash(name, *chosen), name, teams, events, found.filter, found.at_least, quiet_hours)
        for name in dict.fromkeys(names)
    ]  # fmt: skip


def _check_filter(document: Document, path: str, text: str, events: frozenset[str]) -> None:
    if not events <= OF_FAILURES:
        named = " and ".join(sorted(OF_FAILURES))
        document.reject_path(path, f"a filter chooses among failures: give events, of {named}; others go to a rule without")
    try:
        if asks_payload(parse_filter(text)):
            document.reject_path(path, "a filter on values or headers reads payloads, which no notification does")
    except FilterInvalid as invalid:
        document.reject_path(path, str(invalid))


def _hash(*parts: object) -> str:
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:16]


def load(settings: Settings) -> ReloadedFile[RuleFile] | None:
    """Load the file of the setting, which is read again when it changes; None where none is set. Raises SettingsInvalid."""
    if settings.console_notifications is None:
        return None
    name = str(settings.console_notifications)

    def parse_file(text: str) -> RuleFile:
        try:
            return parse(text, name)
        except PolicyFileInvalid as invalid:
            raise SettingsInvalid(SETTING, str(invalid)) from None

    return ReloadedFile(SETTING, settings.console_notifications, parse_file)


_SECRET_CHARS_MIN = 5
_REASON_CHARS_MAX = 300


def read_url(file: Path) -> str:
    """Read the one line of a file that holds a URL; raises NotificationFailed, which does not repeat it, where there is none."""
    try:
        lines = [line.strip() for line in file.read_text().splitlines() if line.strip() and not line.startswith("#")]
    except OSError as error:
        raise NotificationFailed(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise NotificationFailed(f"{file} is not UTF-8 text; is it the right file?") from None
    if len(lines) != 1 or "://" not in lines[0]:
        raise NotificationFailed(f"{file} does not hold one line with one URL")
    return lines[0]


def hide_parts(text: str, url: str) -> str:
    """Return text in one line without any part of a URL that may be a secret: all but its scheme and short words.

    >>> hide_parts("Failed: /services/T0001/B0002 said 404", "slack://T0001/B0002/c")
    'Failed: /services/***/*** said 404'
    """
    scheme, _, rest = url.partition("://")
    parts = {part for part in re.split(r"[/?&=:@#%,+;\s]+", rest) if len(part) >= _SECRET_CHARS_MIN}
    for part in sorted(parts, key=len, reverse=True):
        if part != scheme:
            text = text.replace(part, "***")
    return escape_unprintable(text, _REASON_CHARS_MAX)
