"""Fields of values that a policy masks for a role: they are shown by their shape alone, wherever a payload is shown."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from retry.console.web.payload_views import describe_type
from retry.console.web.rights import Role, Viewer
from retry.policies.registry import Registry

REFUSED_EDIT = "Fields of this value are masked for you: who sees them edits it"


def find_masked_paths(registry: Registry, viewer: Viewer, team: str | None) -> tuple[str, ...]:
    """Find the paths of a team's values that this viewer sees masked."""
    masks = registry.masks.get(team or "", {})
    return tuple(path for path, role in masks.items() if not _sees(viewer, Role(role), team))


def has_masked_team(registry: Registry, viewer: Viewer, teams: Iterable[str] | None = None) -> bool:
    """Whether something is masked for this viewer in one of these teams, or in any that the viewer sees."""
    return any(viewer.may(Role.VIEWER, team) and find_masked_paths(registry, viewer, team) for team in teams or registry.masks)


def _sees(viewer: Viewer, masked: Role, team: str | None) -> bool:
    return any(viewer.may(role, team) for role in Role if role.covers(masked) and role is not masked)


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
