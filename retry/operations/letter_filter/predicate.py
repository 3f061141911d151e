"""A filter → the question whether one letter is meant. What is dear to know of a letter is asked last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Protocol

import msgspec

from retry.dead_letters.failure import Failure
from retry.errors import FilterInvalid
from retry.operations.letter_filter.fields import DISCARDED, GROUP, OF_CONSOLE, STATES
from retry.operations.letter_filter.syntax import AllOf, AnyOf, Bound, Filter, Glob, Moment, Not, Range, Span, Term
from retry.record import Headers, decode_text

# A path into a JSON value → the text that stands there. Only what the path passes through is looked at.

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
_text = msgspec.json.Decoder(str).decode


def find_text(value: bytes | None, path: str) -> str | None:
    """Find a string, without its quotes, or a number, true, false or null as it is written.

    None where the value is no JSON, has nothing at the path, or has an object or a list there.

    >>> find_text(b'{"items": [{"id": 17}]}', "$.items.0.id"), find_text(b'{"a": {}}', "$.a")
    ('17', None)
    """
    raw = value or b""
    try:
        for name in path.split(".")[1:]:
            raw = bytes(_elements(raw)[int(name)] if _is_list(raw) and name.isdecimal() else _members(raw)[name])
        # Whole, so that broken JSON is none.
        msgspec.json.decode(raw, type=msgspec.Raw)
        first = raw.strip()[:1]
        return None if first in (b"{", b"[") else _text(raw) if first == b'"' else raw.strip().decode()
    except (msgspec.MsgspecError, KeyError, IndexError, RecursionError, ValueError):
        return None


def _is_list(raw: bytes) -> bool:
    return raw.lstrip()[:1] == b"["


_FAILURE_COST, _VALUE_COST = 1, 2


class LetterFacts(Protocol):
    """The facts about a letter that a filter may ask for. None where one is not known: then no term that asks for it holds.

    Attributes:
      partition: of the dead-letter topic.
      attempt: as the header `retry-attempt` has it.
      failed_ms: when it failed last.
      due_ms: None where the letter waits no more.
    """

    @property
    def state(self) -> str: ...
    @property
    def team(self) -> str | None: ...
    @property
    def topic(self) -> str | None: ...
    @property
    def partition(self) -> int | None: ...
    @property
    def attempt(self) -> int | None: ...
    @property
    def first_failed_ms(self) -> int | None: ...
    @property
    def failed_ms(self) -> int | None: ...
    @property
    def due_ms(self) -> int | None: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def version(self) -> str | None: ...
    @property
    def failure(self) -> Failure: ...
    @property
    def fingerprint(self) -> str | None: ...
    @property
    def lineage(self) -> str | None: ...


Predicate = Callable[[LetterFacts], bool]
# The letters of a term of `OF_CONSOLE`, by field and name; see `Replica.in_group` of the console.
InGroup = Callable[[str, str], Predicate]
_Texts = Callable[[LetterFacts], Iterator[str | None]]


def build_predicate(letter_filter: Filter, now_ms: int, in_group: InGroup | None = None) -> Predicate:
    """Build the test of whether a filter selects a letter, as of now; raises `FilterInvalid` of groups without `in_group`."""
    if isinstance(letter_filter, Term):
        if letter_filter.field in OF_CONSOLE:
            return _of_group(letter_filter, in_group)
        value = letter_filter.value
        return _ranges(letter_filter.field, value, now_ms) if isinstance(value, Range) else _globs(letter_filter, value)
    if isinstance(letter_filter, Not):
        holds = build_predicate(letter_filter.of, now_ms, in_group)
        return lambda letter: not holds(letter)
    parts = [build_predicate(each, now_ms, in_group) for each in sorted(letter_filter.of, key=_cost)]
    if isinstance(letter_filter, AllOf):
        return lambda letter: all(part(letter) for part in parts)
    return lambda letter: any(part(letter) for part in parts)


def list_states(letter_filter: Filter, *, discarded: bool = False) -> frozenset[str]:
    """List the states that a letter may have of which a filter holds; where no other has to be looked at.

    What was discarded is meant only where that is said, in the filter or with `discarded`.
    """
    possible = frozenset(state for state in STATES if _possible(letter_filter, state)[0])
    return possible if discarded or mentions_state(letter_filter, DISCARDED) else possible - {DISCARDED}


def find_latest_due_ms(letter_filter: Filter, now_ms: int) -> float:
    """Return a due time in milliseconds after which a filter selects no letter; infinity where the filter sets no such limit.

    Waiting letters are read in the order of their due times, so reading can stop there.
    """
    if isinstance(letter_filter, AllOf):
        return min((find_latest_due_ms(each, now_ms) for each in letter_filter.of), default=inf)
    if isinstance(letter_filter, AnyOf):
        return max(find_latest_due_ms(each, now_ms) for each in letter_filter.of)
    if isinstance(letter_filter, Not) or letter_filter.field != "due" or not isinstance(letter_filter.value, Range):
        return inf
    high = bound_at(letter_filter.value.high, now_ms)
    return inf if high is None else high


def mentions_state(letter_filter: Filter, state: str) -> bool:
    if isinstance(letter_filter, Term):
        return letter_filter.field == "state" and letter_filter.value == Glob((state,))
    parts = [letter_filter.of] if isinstance(letter_filter, Not) else letter_filter.of
    return any(mentions_state(each, state) for each in parts)


def _possible(letter_filter: Filter, state: str) -> tuple[bool, bool]:
    """Whether a filter may hold of a letter in a state, and whether it may not."""
    if isinstance(letter_filter, Term):
        if letter_filter.field != "state":
            return True, True
        is_it = letter_filter.value == Glob((state,))
        return is_it, not is_it
    if isinstance(letter_filter, Not):
        return _possible(letter_filter.of, state)[::-1]
    parts = [_possible(each, state) for each in letter_filter.of]
    holds, fails = [may for may, _ in parts], [may_not for _, may_not in parts]
    return (all(holds), any(fails)) if isinstance(letter_filter, AllOf) else (any(holds), all(fails))


def _of_group(term: Term, in_group: InGroup | None) -> Predicate:
    if in_group is None or not isinstance(term.value, Glob):
        raise FilterInvalid(1, f"{term} asks for what only the console knows")
    return in_group(term.field, term.value.parts[0])


def _globs(term: Term, value: Glob) -> Predicate:
    fits = value.anywhere() if term.field == "message" else value.compile_whole()
    texts = _texts(term)
    return lambda letter: any(text is not None and fits(text) for text in texts(letter))


def _texts(term: Term) -> _Texts:
    """Return a function that yields the texts of a letter which a term compares; the term holds where one of them matches."""
    if term.field == "header":
        return lambda letter: (decode_text(value) for name, value in letter.headers if name == term.name)
    if term.field == "value":
        return lambda letter: iter([find_text(letter.value, term.name)])
    return _TEXTS[term.field]


_TEXTS: dict[str, _Texts] = {
    "state": lambda letter: iter([letter.state]),
    "team": lambda letter: iter([letter.team]),
    "topic": lambda letter: iter([letter.topic]),
    "key": lambda letter: iter([decode_text(letter.key)]),
    "exception": lambda letter: iter([letter.failure.exception, letter.failure.thrown, letter.failure.cause]),
    "cause": lambda letter: iter([letter.failure.cause]),
    "message": lambda letter: iter([letter.failure.message]),
    "consumer-group": lambda letter: iter([letter.failure.consumer_group]),
    "fingerprint": lambda letter: iter([letter.fingerprint]),
    "version": lambda letter: iter([letter.version]),
}


_NUMBERS: dict[str, Callable[[LetterFacts], int | None]] = {
    "attempt": lambda letter: letter.attempt,
    "partition": lambda letter: letter.partition,
    "due": lambda letter: letter.due_ms,
    "failed": lambda letter: letter.failed_ms,
}


def _ranges(field: str, value: Range, now_ms: int) -> Predicate:
    low, high = bound_at(value.low, now_ms), bound_at(value.high, now_ms)

    def within(number: int | None) -> bool:
        return number is not None and (low is None or number >= low) and (high is None or number <= high)

    if (fact := _NUMBERS.get(field)) is not None:
        return lambda letter: within(fact(letter))
    return lambda letter: letter.first_failed_ms is not None and within(now_ms - letter.first_failed_ms)


def bound_at(bound: Bound | None, now_ms: int) -> int | None:
    if isinstance(bound, Moment):
        return bound.at_ms(now_ms)
    return bound.ms if isinstance(bound, Span) else bound


def _cost(letter_filter: Filter) -> int:
    """Rank a filter by how much has to be read of a letter before it is decided."""
    if isinstance(letter_filter, Not):
        return _cost(letter_filter.of)
    if isinstance(letter_filter, AllOf | AnyOf):
        return max(map(_cost, letter_filter.of), default=0)
    if letter_filter.field == "value":
        return _VALUE_COST
    is_of_failure = letter_filter.field in ("exception", "cause", "message", "consumer-group", "fingerprint", GROUP)
    return _FAILURE_COST if is_of_failure else 0
