"""What consoles have told whom, kept in `<app>-notes`: so it is known after a restart, and to every console alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from sqlite3 import Connection
from typing import NamedTuple

from retry.console.folding import notes
from retry.console.folding.notes import TARGET, TELLING, TOLD, FailingTarget, Record, Telling, Told


class ToldEvent(NamedTuple):
    target: str
    event: str


class ToldEvents:
    """Reads what was told from the replica, and writes it; `write` returns once Kafka has records and the replica shows them."""

    def __init__(
        self, write: Callable[[Mapping[str, Record | None]], object], reading: Callable[[], AbstractContextManager[Connection]]
    ) -> None:
        self._write, self._reading = write, reading

    def list_told(self) -> dict[ToldEvent, Told]:
        with self._reading() as connection:
            rows = notes.list_notes(connection, TOLD)
        return {ToldEvent(*key.removeprefix(TOLD).split("/", 1)): notes.told(value) for key, value in rows if key.count("/") > 1}

    def list_beginnings(self) -> dict[str, Telling]:
        with self._reading() as connection:
            return {key.removeprefix(TELLING): notes.telling(value) for key, value in notes.list_notes(connection, TELLING)}

    def list_failing(self) -> dict[str, FailingTarget]:
        with self._reading() as connection:
            return {key.removeprefix(TARGET): notes.failing_target(value) for key, value in notes.list_notes(connection, TARGET)}

    def write_told(self, told: Mapping[ToldEvent, Told | None]) -> None:
        """Write down what was told; None takes it back, so that it is told again. Raises RecordUnwritten, as those below."""
        self._write({f"{TOLD}{target}/{event}": record for (target, event), record in told.items()})

    def write_beginnings(self, beginnings: Mapping[str, Telling | None]) -> None:
        self._write({f"{TELLING}{rule}": record for rule, record in beginnings.items()})

    def write_failing(self, target: str, record: FailingTarget | None) -> None:
        self._write({f"{TARGET}{target}": record})

