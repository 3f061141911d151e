"""Goes on under another transactional id, and so with another producer id, behind each transaction that was undone.

A broker that was a copy of a partition when two transactions of one producer id were undone may tell readers of the first one
alone, once it leads (Kafka 4.1, docs/evidence/faults.md). They are then given what the second one wrote. So no producer id has
two undone transactions near each other: an id is used again only behind 255 others.

Each worker remembers in a file which ids it had last, since what a killed one left open ends at once where its id is opened.
Nothing rests on that file. Without it, brokers end what was left open when it has lived for long enough.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import orjson

log = logging.getLogger(__name__)

# Brokers remember an id for a week, and a producer id in each partition for a day: this many are no burden to them.
IDS_MAX = 256


class TransactionalIds:
    """The transactional ids of one producer, of which it has one at a time; the first is `name`.

    Attributes:
      is_in_doubt: whether a transaction of the current id was begun that is not known to be committed, or may have been, by a
        former process. Whoever opens this id has the brokers end it.
    """

    def __init__(
        self, name: str, number: int = 0, note_number: Callable[[str, int], None] = lambda *_: None, *, is_in_doubt: bool = False
    ) -> None:
        self._name, self._number, self._note_number, self.is_in_doubt = name, number, note_number, is_in_doubt

    @property
    def current(self) -> str:
        # No instance name has a tilde, so it is not an id of another worker, as "a-1" would be beside "a".
        return f"{self._name}~{self._number}" if self._number else self._name

    def advance(self) -> None:
        """Go on to the next id, since a transaction of the current one was undone.

        >>> ids = TransactionalIds("shop-sweep-a-0", is_in_doubt=True)
        >>> ids.advance()
        >>> ids.current, ids.is_in_doubt
        ('shop-sweep-a-0~1', False)
        """
        self._number, self.is_in_doubt = self._number % IDS_MAX + 1, False
        self._note_number(self._name, self._number)


class RememberedIds:
    """The transactional ids of all producers of a worker, remembered in a file for the next process of that worker."""

    def __init__(self, file: Path) -> None:
        self._file, self._lock = file, threading.Lock()
        self._numbers = _read_numbers(file)
        self._ids = dict[str, TransactionalIds]()

    def find_ids(self, name: str) -> TransactionalIds:
        """Find the ids of the producer that is called `name`; at first the former process may have left something open."""
        with self._lock:
            known = self._ids.get(name)
            if known is None:
                number = self._numbers.get(name, 0)
                known = self._ids[name] = TransactionalIds(name, number, self._note_number, is_in_doubt=True)
            return known

    def _note_number(self, name: str, number: int) -> None:
        with self._lock:
            self._numbers[name] = number
            try:
                written = self._file.with_suffix(".new")
                written.write_bytes(orjson.dumps(self._numbers))
                written.replace(self._file)
            except OSError as error:
                log.warning("%s cannot be written (%s): a restart may take up to 16 s longer", self._file, error)


def _read_numbers(file: Path) -> dict[str, int]:
    try:
        found = orjson.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, orjson.JSONDecodeError) as error:
        log.warning("%s cannot be read (%s): this start may take up to 16 s longer", file, error)
        return {}
    is_number = isinstance(found, dict) and all(isinstance(each, int) and 0 <= each <= IDS_MAX for each in found.values())
    return found if is_number else {}
