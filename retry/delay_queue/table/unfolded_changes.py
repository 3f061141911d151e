"""Which entries the table has changed before their records come back from the changelog: ordered, named, and those of blocks.

What one transaction deletes and puts again takes its place in a queue at once, or its successors would overtake it. The fold
reads those records later: were the put folded as news, an entry that was sent meanwhile would come back to life until its null is
folded, too. The same holds for entries that stay when others leave their block.

Nothing is put under a key of which the null is still to be folded: that null would take out what was put since. Nor may the null
be passed over: where this worker has lost the shard, it is another owner's. So whoever moves an entry asks whether a key is about
to leave, and chooses the next time at which none is.
"""

from __future__ import annotations

from collections import OrderedDict


class UnfoldedChanges:
    """Changes of a table that are not folded yet, in memory only: a new table folds all that was committed before it is swept."""

    def __init__(self) -> None:
        # Hashes of values, by key. Compaction may remove a record before it is folded: what is left of it here hurts nobody,
        # since no other writer puts the same value under the same key.
        self._put: dict[bytes, int] = {}
        self._gone: dict[bytes, int] = {}
        # In the order of their nulls in the changelog: with one of them all before it are folded.
        self._leaving: OrderedDict[bytes, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._put or self._gone or self._leaving)

    def is_put(self, key: bytes) -> bool:
        return key in self._put

    def note_put(self, key: bytes, value: bytes) -> None:
        """The table has put it, and did not have it before: its record is not folded yet."""
        self._put[key] = hash(value)

    def note_drop(self, key: bytes) -> None:
        """Note that an entry left the table. If its put is not folded yet, that is not to put it once more."""
        value_hash = self._put.pop(key, None)
        if value_hash is not None:
            self._gone[key] = value_hash
        self._leaving[key] = None

    def is_leaving(self, key: bytes) -> bool:
        return key in self._leaving

    def is_news(self, key: bytes, value: bytes | None) -> bool:
        """Whether a record is to be folded, or only what the table did itself. Nulls always are: they may be somebody else's."""
        if value is None:
            self._put.pop(key, None)
            while key in self._leaving:
                # Their puts are folded as well, though perhaps passed over, as records that others of their batch replace are.
                self._gone.pop(self._leaving.popitem(last=False)[0], None)
            return True
        if self._gone.get(key) == hash(value):
            del self._gone[key]
            return False
        self._put.pop(key, None)
        return True
