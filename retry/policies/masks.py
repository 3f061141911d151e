"""The key `masks` of a team: which fields of a value the console shows by their shape alone, and to whom."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import UNSET

from retry.policies.schema import Team, convert_value
from retry.policies.yaml_document import Document

# From the least on: each sees what those before it see.
ROLES = ("viewer", "operator", "admin")
_PATH = re.compile(r"\$(\[\])?(\.[A-Za-z0-9_-]{1,100}(\[\])?){0,20}")
# By team: for each path the highest role that sees it masked.
Masks = Mapping[str, Mapping[str, str]]


def read_masks(document: Document, teams: Mapping[str, Team]) -> Masks:
    """Read the masks of all teams; raises PolicyFileInvalid where a path or a role is none."""
    found: dict[str, Mapping[str, str]] = {}
    for team, section in teams.items():
        if section.masks is UNSET:
            continue
        at = f"teams.{team}.masks"
        masks: dict[str, str] = convert_value(document, section.masks, dict[str, str], at)
        for path, role in masks.items():
            if not _PATH.fullmatch(path):
                document.reject_path(f"{at}.{path}", "is no path of a field; write one like $.customer.card, or $.items[].iban")
            if role not in ROLES:
                reason = f"{role!r:.40} is no role; write the highest that does not see it: {', '.join(ROLES)}"
                document.reject_path(f"{at}.{path}", reason)
        found[team] = MappingProxyType(masks)
    return MappingProxyType(found)
