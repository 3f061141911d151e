"""The roles of people in a team, as policy files and files of tokens name them."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """The rights of a person in a team; each role includes those before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, other: Role) -> bool:
        return _RANKS[self] >= _RANKS[other]


_RANKS = {role: rank for rank, role in enumerate(Role)}
