"""Which shard letters wait in that may wait in any: all of one batch in one, and after a while in another.

Every partition that a transaction touches costs brokers and workers the same with one letter as with a thousand. Letters that
are due together are sent as they lie in their shard, so that those of one batch keep the order in which they were read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from retry import clock

# A shard that is chosen for long has more than its part of what waits, and is swept by one transaction at a time.
_STAY_S, _LETTERS_MAX = 20.0, 25_000


class HomeShard:
    """Chooses shards, for one thread at a time.

    Args:
      shards: how many there are.
      list_ready: lists those of them that this worker owns and sweeps.
    """

    def __init__(self, shards: int, list_ready: Callable[[], Sequence[int]]) -> None:
        self._shards, self._list_ready = shards, list_ready
        self._home: int | None = None
        self._moves, self._letters = clock.Interval(_STAY_S), 0

    def choose(self, letters: int) -> int:
        """The shard for a batch of so many letters."""
        ready = sorted(self._list_ready())
        is_over = self._moves.is_due() or self._letters >= _LETTERS_MAX
        if is_over or self._home is None or (ready and self._home not in ready):
            # A worker that owns none lets others deliver.
            candidates = ready or range(self._shards)
            home = -1 if self._home is None else self._home
            self._home, self._letters = next((shard for shard in candidates if shard > home), candidates[0]), 0
        self._letters += letters
        return self._home
