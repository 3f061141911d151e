"""What helps to write a filter: names that there are, and filters that somebody has kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Names:
    """The names that the console offers to complete a filter; at most 200 of each field, in alphabetical order."""

    teams: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    consumer_groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SavedFilter:
    """A filter that somebody has kept for a team; of no team it is everybody's."""

    name: str
    text: str
    team: str
    by: str
