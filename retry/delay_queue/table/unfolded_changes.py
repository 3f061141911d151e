"""Which ordered and named entries the table has changed before their records come back from the changelog.

What one transaction deletes and puts again takes its place in a queue at once, or its successors would overtake it. The fold
reads those records later, and by then the entry may have been sent already. Were its put folded as news, it would come back
to life until its null is folded, too.
"""

from __future__ import annotations


class UnfoldedChanges:
    """Kept in memory only: a table that is opened anew folds all that was committed before it is swept."""

    def __init__(self) -> None:
        self._put: set[bytes] = set()
        self._gone: set[bytes] = set()

    def put(self, key: bytes) -> None:
        """The table has put it; its record is not folded yet."""
        self._put.add(key)
        self._gone.discard(key)

    def dropped(self, key: bytes) -> None:
        """It left the table. If its put is not folded yet, that is not to put it once more."""
        if key in self._put:
            self._put.remove(key)
            self._gone.add(key)

    def is_news(self, key: bytes, value: bytes | None) -> bool:
        """Whether a record is to be folded, or only what the table did itself. Nulls always are: they may be somebody else's."""
        if value is None:
            self._gone.discard(key)
            return True
        self._put.discard(key)
        return key not in self._gone
