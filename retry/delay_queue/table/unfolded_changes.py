"""Which ordered and named entries the table has changed before their records come back from the changelog.

What one transaction deletes and puts again takes its place in a queue at once, or its successors would overtake it. The fold
reads those records later, and by then the entry may have been sent already. Were its put folded as news, it would come back
to life until its null is folded, too.

An entry may go and come back under one key before anything is folded: deferred, and then rescheduled to where it was. So a
null says nothing of the puts behind it, and each put is known again by its value.
"""

from __future__ import annotations


class UnfoldedChanges:
    """Kept in memory only: a table that is opened anew folds all that was committed before it is swept."""

    def __init__(self) -> None:
        # Hashes of values, by key. Compaction may remove a record before it is folded: what is left of it here hurts nobody,
        # since no other writer puts the same value under the same key.
        self._put: dict[bytes, int] = {}
        self._gone: dict[bytes, list[int]] = {}

    def put(self, key: bytes, value: bytes) -> None:
        """The table has put it, and did not have it before: its record is not folded yet."""
        self._put[key] = hash(value)

    def dropped(self, key: bytes) -> None:
        """It left the table. If its put is not folded yet, that is not to put it once more."""
        value_hash = self._put.pop(key, None)
        if value_hash is not None:
            self._gone.setdefault(key, []).append(value_hash)

    def is_news(self, key: bytes, value: bytes | None) -> bool:
        """Whether a record is to be folded, or only what the table did itself. Nulls always are: they may be somebody else's."""
        if value is None:
            return True
        gone = self._gone.get(key)
        if gone and hash(value) in gone:
            gone.remove(hash(value))
            if not gone:
                del self._gone[key]
            return False
        self._put.pop(key, None)
        return True
