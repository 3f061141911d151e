"""Letters of a selection as a preview in the console finds them, with a replica and records that are given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from retry.console.reading import payloads
from retry.console.reading.letters import LogRecord
from retry.console.reading.payloads import Payloads
from retry.console.reading.selected_letters import SelectedLetters
from retry.console.rows import Scope
from retry.operations.act.selection import Selection, select_letters
from retry.policies.registry import Registry
from retry.record import Headers
from retry.settings import Settings
from tests.support.replicas import NOW_MS, OWN, GivenMessage, GivenReplica

Waits = tuple[bytes, bytes]
Rests = tuple[bytes, bytes, Headers]


class Reads:
    """A replica of records of the changelog and of the parking topic, and what is read of these again.

    Attributes:
      answers: what Kafka has in place of some records, by topic and offset.
      fetched: the records that were asked for.
      progress: how many letters had been looked at, time by time.
    """

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, waits: Sequence[Waits], rests: Sequence[Rests] = (),
        registry: Registry | None = None,
    ) -> None:  # fmt: skip
        self.fetched, self.progress = list[LogRecord](), list[int]()
        self.answers: dict[tuple[str, int], str] = {}
        self.registry = registry or Registry()
        self.replica = GivenReplica(folder, self.registry)
        self.replica.fold(OWN.changelog, *waits)
        self.replica.fold(OWN.parked, *rests)
        self.replica.finish()
        self._records = {
            **{(OWN.changelog, n): GivenMessage(OWN.changelog, 0, n, *row, None, NOW_MS) for n, row in enumerate(waits)},
            **{(OWN.parked, n): GivenMessage(OWN.parked, 0, n, *row, NOW_MS) for n, row in enumerate(rests)},
        }
        monkeypatch.setattr(payloads._Fetcher, "fetch", lambda _self, places, _within_s: self._fetch(places))

    def _fetch(self, places: Sequence[LogRecord]) -> dict[LogRecord, GivenMessage | str]:
        self.fetched += places
        found = {place: self.answers.get((place.topic, place.offset)) for place in places}
        return {place: told or self._records[place.topic, place.offset] for place, told in found.items()}

    def select(self, words: str = "", *names: str, scope: Scope = None) -> SelectedLetters:
        """The letters of a filter, or of names."""
        return self.find(select_letters(words, names, NOW_MS), scope)

    def find(self, selection: Selection, scope: Scope = None) -> SelectedLetters:
        """The letters of a selection."""
        reading = lambda: self.replica.readers.reading(0.0)  # noqa: E731
        looked = Payloads(Settings(app_id="app"), lambda: self.registry, reading, lambda: "a file", lambda *_: False)
        listing = SimpleNamespace(
            registry=self.registry, cluster=SimpleNamespace(names=OWN), prove_references=lambda _letters, _deadline: None
        )
        return SelectedLetters(
            looked, listing, selection, scope=scope, shards=1, now_ms=NOW_MS, note_progress=self.progress.append  # type: ignore[arg-type]
        )  # fmt: skip
