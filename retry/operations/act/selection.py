"""Which letters a person means with a filter and with names of single letters, and in which states they are looked for."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from retry.delay_queue.entry_keys import parse_source
from retry.operations.act.choose import Selects
from retry.operations.explain.search import is_location, parse_location
from retry.operations.found_letter import FoundLetter
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.predicate import InGroup, build_predicate, list_states
from retry.operations.letter_filter.predicate import mentions_state as names_state
from retry.operations.letter_filter.syntax import EVERYTHING, Filter

RESTING = ("parked", "discarded")
_NAMES_SHOWN = 20


class Selection(NamedTuple):
    """The letters that a person asks for.

    Attributes:
      states: the states that a selected letter may have.
      words: the filter and the names, as a person wrote them.
      letter_filter: what the filter asks for; names of single letters come on top.
      names: of single letters, one of which a letter must have; empty for all.
    """

    selects: Selects
    states: frozenset[str]
    words: str
    letter_filter: Filter = EVERYTHING
    names: frozenset[str] = frozenset()

    @property
    def rests(self) -> bool:
        """Whether letters that are parked or discarded may be meant."""
        return bool(self.states.intersection(RESTING))

    def of_teams(self, teams: frozenset[str] | None) -> Selection:
        """Return a selection of the letters of these teams alone; None stands for all teams."""
        if teams is None:
            return self
        selects = self.selects

        def theirs(letter: FoundLetter) -> bool:
            return letter.team in teams and selects(letter)

        return self._replace(selects=theirs)


def select_letters(words: str, names: Collection[str], now_ms: int, in_group: InGroup | None = None) -> Selection:
    """Build the selection of letters that a filter matches and, where names are given, that have one of the names.

    Args:
      names: `key` or `letter` of `retry letters --json`: the due time and where a letter failed, or that alone; of one that
        rests, where it rests or where it failed. One that is discarded is meant by where it failed only if the filter says so:
        former versions of a letter that was edited failed there, too.
      in_group: tells which letters a group has, where filters may ask for that.

    Raises:
      FilterInvalid: `words` are no filter.
      ValueError: a name does not name a letter; the name is the error's argument.
    """
    letter_filter = parse(words, groups=in_group is not None)
    for each in names:
        _demand_name(each)
    # Whoever names a letter means it wherever it rests.
    fits, named = build_predicate(letter_filter, now_ms, in_group), frozenset(names)
    of = list_states(letter_filter, discarded=bool(named))
    shown = " ".join(filter(None, (words, *(f"--letter {each}" for each in [*names][:_NAMES_SHOWN]))))
    if len(named) > _NAMES_SHOWN:
        shown += f" and {len(named) - _NAMES_SHOWN} more"
    if named:
        if not any(map(is_location, named)):
            of &= {"waiting"}
        by_source = of if of == {"discarded"} else of - {"discarded"}

        def is_selected(letter: FoundLetter) -> bool:
            is_named = letter.name in named or (letter.state in by_source and str(letter.source) in named)
            return letter.state in of and is_named and fits(letter)

        return Selection(is_selected, of, shown, letter_filter, named)
    if of.issuperset({"waiting", "parked"}) and not says_states(letter_filter):
        # Whoever names no state does not mean what was given up.
        of = frozenset({"waiting"})
    return Selection(lambda letter: letter.state in of and fits(letter), of, shown, letter_filter)


def says_states(letter_filter: Filter) -> bool:
    """Whether a filter says that letters are meant that are parked, besides those that wait."""
    return names_state(letter_filter, "parked")


def _demand_name(name: str) -> None:
    try:
        parse_location(name) if is_location(name) else parse_source(name)
    except ValueError:
        raise ValueError(name) from None
