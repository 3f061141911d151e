"""Parts of letters that a policy masks for a role: they are not shown, wherever a letter is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException

from retry.console.reading.filter_sql import OF_PAYLOAD, terms
from retry.console.web.payload_views import describe_type
from retry.console.web.rights import Sight
from retry.dead_letters.failure import Failure
from retry.dead_letters.frameworks.detection import KNOWN
from retry.dead_letters.retry_headers import OURS, is_stack_header
from retry.operations.letter_filter.syntax import Filter
from retry.policies.masks import HEADER, KEY, MESSAGE, STACK
from retry.policies.registry import Registry

REFUSED_EDIT = "Fields of this value are masked for you: who sees them edits it"
# Of what frameworks write these alone never say what an exception says.
_NO_MESSAGE = re.compile(
    r"(?:fqcn|class(?:[-_.]?name)?|type|topic|partition|offset|timestamp(?:[-_]ms)?|group(?:[-_.]?id)?|attempts?|count|stage)$",
    re.IGNORECASE,
)


class MaskedParts(NamedTuple):
    """The parts of a team's letters that somebody sees masked.

    Attributes:
      paths: of fields of the value.
      headers: names, in which `*` and `?` are as in file names.
      others: of `key`, `message` and `stack`.
    """

    paths: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    others: frozenset[str] = frozenset()

    def list_all(self) -> list[str]:
        """List them as a policy file names them."""
        return [*self.paths, *(f"{HEADER}{name}" for name in self.headers), *sorted(self.others)]

    @property
    def hides_stack(self) -> bool:
        """Whether the stack trace is hidden, which begins with the message."""
        return not self.others.isdisjoint((MESSAGE, STACK))

    def hides_header(self, name: str, value: bytes | None, failure: Failure) -> bool:
        """Whether a header is hidden: by its name, or since it may have the stack trace or the message of an exception."""
        if any(fnmatchcase(name.lower(), masked.lower()) for masked in self.headers):
            return True
        if name in OURS:
            return False
        if self.hides_stack and is_stack_header(name):
            return True
        if MESSAGE not in self.others or not value:
            return False
        if name in KNOWN:
            return not _NO_MESSAGE.search(name)
        said = (failure.message, failure.cause_message)
        return any(text and text.encode("utf-8", "replace") in value for text in said)


def find_masked(registry: Registry, sight: Sight, team: str | None) -> MaskedParts:
    """Find the parts of a team's letters that are masked for who sees so much."""
    hidden = [part for part, role in registry.masks.get(team or "", {}).items() if not sight.sees(role, team)]
    return MaskedParts(
        tuple(part for part in hidden if part.startswith("$")),
        tuple(part.removeprefix(HEADER) for part in hidden if part.startswith(HEADER)),
        frozenset(hidden) & {KEY, MESSAGE, STACK},
    )  # fmt: skip


def hides(registry: Registry, sight: Sight, part: str, teams: Iterable[str | None]) -> bool:
    """Whether `key` or `message` is masked in one of these teams, as far as they are seen at all."""
    return any(part in find_masked(registry, sight, team).others for team in teams)


def list_masked(registry: Registry, sight: Sight, teams: Iterable[str] | None = None) -> list[str]:
    """List what is masked in one of these teams, or in any that is seen, as a policy file names it."""
    seen = registry.masks if teams is None else teams
    return [part for team in seen if sight.sees_team(team) for part in find_masked(registry, sight, team).list_all()]


def demand_filter(registry: Registry, sight: Sight, letter_filter: Filter) -> None:
    """Raise HTTPException 403 where a filter asks for what is masked: it would tell whether that is what somebody guesses."""
    asked = {term.field for term in terms(letter_filter)}
    masked = set(list_masked(registry, sight))
    if masked and asked & OF_PAYLOAD and masked - {KEY}:
        reason = "a filter on values or headers is for who sees all fields, and some are masked for you"
        raise HTTPException(HTTPStatus.FORBIDDEN, reason)
    for part in sorted(asked & masked & {KEY, MESSAGE}):
        reason = f"a filter by {part} is for who sees it in every team that they see, and it is masked for you in one"
        raise HTTPException(HTTPStatus.FORBIDDEN, reason)


def mask_json(text: bytes, paths: Iterable[str]) -> str | None:
    """Lay out JSON whose masked fields are their shapes; None where it is no JSON, so that nobody knows where its fields are.

    Lists, and objects that do nothing but name the type of what they hold, as Avro's unions, are passed through.

    >>> print(mask_json(b'{"id": 1, "to": [{"card": {"string": "4111"}}]}', ["$.to.card"]))
    {
      "id": 1,
      "to": [
        {
          "card": "masked: object of 1"
        }
      ]
    }
    """
    try:
        value = json.loads(text)
        for path in paths:
            names = [name for name in path.replace("[]", "").split(".")[1:] if name]
            value = _mask(value, names)
        return json.dumps(value, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def _mask(value: Any, names: list[str]) -> Any:
    if not names:
        return f"masked: {describe_type(value)}"
    if isinstance(value, list):
        return [_mask(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    if names[0] in value:
        return {**value, names[0]: _mask(value[names[0]], names[1:])}
    if len(value) == 1:
        return {name: _mask(each, names) for name, each in value.items()}
    return value
