"""Which ordered entries the table knows of before the fold tells it.

What one transaction deletes and puts again takes its place in a queue at once, or its successors would overtake it. The fold
tells of it later, and by then it may have been sent already: told in two portions, the first would bring it back to life
until the second comes.
"""

from __future__ import annotations


class Ahead:
    """Kept in memory only: a table that is opened anew folds all that was committed before it is swept."""

    def __init__(self) -> None:
        self._put: set[bytes] = set()
        self._gone: set[bytes] = set()

    def put(self, key: bytes) -> None:
        """It was put, and the fold has yet to tell of it."""
        self._put.add(key)
        self._gone.discard(key)

    def dropped(self, key: bytes) -> None:
        """It left. If it was put ahead of the fold, that is not to put it once more."""
        if key in self._put:
            self._put.remove(key)
            self._gone.add(key)

    def news(self, key: bytes, value: bytes | None) -> bool:
        """Whether what the fold tells of an entry is to be taken in. Nulls always are: they may be somebody else's."""
        if value is None:
            self._gone.discard(key)
            return True
        self._put.discard(key)
        return key not in self._gone
