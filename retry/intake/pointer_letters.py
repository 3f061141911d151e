"""Pointer letters: the record that one names is put in its place, or it is said why that cannot be.

Some brokers dead-letter a record without its payload, and write where it lies. A header never has another topic read: only
those that the policy file lists as `origins` are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from retry.policies.route import Route
from retry.dead_letters.dead_letter import Letter, filled

_NOT_ALLOWED = "source_not_allowed"

Place = tuple[str, int, int]


class Fetch(Protocol):
    """Fetches records by topic, partition and offset: the record, or a word that says why there is none."""

    def __call__(self, wanted: Collection[Place]) -> Mapping[Place, Any]:
        """See `retry.kafka.record_fetch.Pointers.fetch`."""
        ...


def fill(letters: list[Letter], routes: Sequence[Route], fetch: Fetch | None) -> dict[int, str]:
    """Replace pointers among the letters; by position, why one cannot be retried. Without `fetch` they stay what they are."""
    places = {n: _place(letter) for n, letter in enumerate(letters) if letter.value is None and letter.is_pointer()}
    if not places:
        return {}
    allowed = {n: place for n, place in places.items() if place[0] in routes[n].origins}
    found = fetch(set(allowed.values())) if allowed and fetch else {}
    unfit = dict.fromkeys(places.keys() - allowed.keys(), _NOT_ALLOWED)
    for n, place in allowed.items():
        record = found.get(place)
        if record is None:
            continue
        if isinstance(record, str):
            unfit[n] = record
        else:
            letters[n] = filled(letters[n], record)
    return unfit


def _place(letter: Letter) -> Place:
    failure = letter.failure
    return failure.origin_topic or "", failure.origin_partition or 0, failure.origin_offset or 0
