"""The policy file → a registry. All of it is checked before any of it is used; each mistake has file, line and path.

A key is looked for in the rule that matches, then in the topic, the team, `defaults`, and the built-in defaults.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from pathlib import Path
from types import MappingProxyType

from msgspec import UNSET

from retry.errors import PolicyFileInvalid
from retry.policies.build_routes import Routes
from retry.policies.limits import target_limits, team_limits
from retry.policies.masks import read_masks
from retry.policies.parse_tasks import tasks
from retry.policies.registry import Registry
from retry.policies.route import Route
from retry.policies.schema import File, Team, convert_value
from retry.policies.tasks import TEAM
from retry.policies.validation import checked_topics
from retry.policies.yaml_document import NOBODYS, Document, Own, read, suggest_word

# Thousands of topics fit; more is not a policy file.
_BYTES_MAX = 1 << 20


def load(path: Path | str, own: Own = NOBODYS) -> Registry:
    """Load a policy file of the deployment that has its `own` topics; raises PolicyFileInvalid where it cannot be read, or
    `parse` refuses it."""
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
    return parse(text, str(path), hashlib.sha256(content).hexdigest(), own)


def parse(text: str, name: str, digest: str = "", own: Own = NOBODYS) -> Registry:
    """Parse the text of a policy file; `name` is what messages call the file, `digest` see `Registry`, `own` see `load`.

    Raises PolicyFileInvalid where the text is not a policy file, or says what must not be done.
    """
    if len(text.encode(errors="replace")) > _BYTES_MAX:
        raise PolicyFileInvalid(name, 1, "file", f"is larger than {_BYTES_MAX:,} bytes")
    document = dataclasses.replace(read(text, name, File.__struct_fields__), own=own)
    file: File = convert_value(document, {} if document.value is None else document.value, File, "")
    teams = {team: _team(document, team, section) for team, section in file.teams.items()}
    routes = Routes(document, file.defaults, teams)
    exact: dict[str, Route] = {}
    patterns: list[tuple[re.Pattern[str], Route]] = []
    for each in checked_topics(document, teams):
        if compiled := each.compiled:
            patterns.append((compiled, routes.build_route(each, compiled)))
        else:
            exact[each.written] = routes.build_route(each, None)
    rates, breakers = target_limits(document, file.targets)
    registry = Registry(
        MappingProxyType(exact), tuple(patterns), routes.default, MappingProxyType(team_limits(document, teams)),
        target_limits=MappingProxyType(rates), breakers=MappingProxyType(breakers), masks=read_masks(document, teams),
        digest=digest,
    )  # fmt: skip
    if file.tasks is not UNSET:
        section, limits = tasks(document, file.tasks, registry)
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
