"""Whose entries a lane holds."""

from __future__ import annotations

from typing import NamedTuple


class Lane(NamedTuple):
    """The team, source topic and destination that all entries of a lane have in common."""

    team: str
    topic: str
    destination: str

    @property
    def calls(self) -> bool:
        """Whether its entries are HTTP calls: the destination is an origin then, and no topic."""
        return "://" in self.destination
