"""Pointer letters: the record that one names is put in its place, or the reason why that cannot be.

A header never has another topic read: only those that the policy file lists as `origins` are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from retry.dead_letters.dead_letter import Letter, fill_pointer
from retry.policies.route import Route
from retry.record import RecordLocation

_NOT_ALLOWED, _UNREADABLE = "source_not_allowed", "unreadable_headers"


class Fetch(Protocol):
    """Fetches the record at each place, or a word that says why there is none; see `retry.kafka.record_fetch.RecordFetcher`."""

    def __call__(self, wanted: Collection[RecordLocation]) -> Mapping[RecordLocation, Any]: ...


def fill(letters: list[Letter], routes: Sequence[Route], fetch: Fetch | None) -> dict[int, str]:
    """Replace pointers among the letters; by position, why one cannot be retried. Without `fetch` they stay what they are."""
    locations = {n: _location(letter) for n, letter in enumerate(letters) if letter.value is None and letter.is_pointer()}
    if not locations:
        return {}
    allowed = {n: location for n, location in locations.items() if location[0] in routes[n].origins}
    records = fetch(set(allowed.values())) if allowed and fetch else {}
    unfit = dict.fromkeys(locations.keys() - allowed.keys(), _NOT_ALLOWED)
    for n, location in allowed.items():
        record = records.get(location)
        if record is None:
            continue
        if isinstance(record, str):
            unfit[n] = record
            continue
        letter = fill_pointer(letters[n], record)
        if letter is None:
            unfit[n] = _UNREADABLE
        else:
            letters[n] = letter
    return unfit


def _location(letter: Letter) -> RecordLocation:
    failure = letter.failure
    return failure.origin_topic or "", failure.origin_partition or 0, failure.origin_offset or 0
