"""The key `masks` of a team: what of its letters the console does not show, and up to which role."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import UNSET

from retry.policies.schema import Role, Team, convert_value
from retry.policies.yaml_document import Document

# Besides fields of the value and headers; the message is that of the exception, in a stack trace, too.
KEY, MESSAGE, STACK = "key", "message", "stack"
HEADER = "header."
_PATH = re.compile(r"\$(\[\])?(\.[A-Za-z0-9_-]{1,100}(\[\])?){0,20}")
_HEADER = re.compile(r"header\.[^\s\x00-\x1f]{1,249}")
# By team: for each path of a field, each header and each other part the highest role that sees it masked.
Masks = Mapping[str, Mapping[str, Role]]


def read_masks(document: Document, teams: Mapping[str, Team]) -> Masks:
    """Read the masks of all teams; raises PolicyFileInvalid where a part or a role is none."""
    found: dict[str, Mapping[str, Role]] = {}
    for team, section in teams.items():
        if section.masks is UNSET:
            continue
        at = f"teams.{team}.masks"
        masks: dict[str, str] = convert_value(document, section.masks, dict[str, str], at)
        for part, role in masks.items():
            if part not in (KEY, MESSAGE, STACK) and not _PATH.fullmatch(part) and not _HEADER.fullmatch(part):
                reason = (
                    "is no path of a field, and no other part of a letter; write one like $.customer.card or $.items[].iban,"
                    " header.NAME, key, message or stack"
                )
                document.reject_path(f"{at}.{part}", reason)
            if role not in list(Role):
                reason = f"{role!r:.40} is no role; write the highest that does not see it: {', '.join(Role)}"
                document.reject_path(f"{at}.{part}", reason)
        found[team] = MappingProxyType({part: Role(role) for part, role in masks.items()})
    return MappingProxyType(found)


def list_masking_teams(masks: Masks, part: str) -> frozenset[str]:
    """List the teams that mask a part for any role."""
    return frozenset(team for team, parts in masks.items() if part in parts)
