"""Topics that refuse single letters for what they are, while they take others: as compacted ones those without a key, or any."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from retry.testing.kafka import MemoryRecord
from tests.simulation.plan import DEAD_LETTERS

if TYPE_CHECKING:
    from tests.simulation.world import World

_RATE = 0.04
_RETRY = ("orders.retry", "orders.slow", "keyed.retry", "others.retry", "fickle.retry")
_TOPICS = (*_RETRY, "shop.parked", "sim-parked", "sim-discarded")


class Refusals:
    """Change what topics take, by draws of their own, so that a seed goes on in the same way without them.

    Attributes:
      values: of letters that were ever refused somewhere.
    """

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._random = world, Random(f"refusals of {seed}")
        self._on = self._random.random() < 0.3
        self.values: set[bytes | None] = set()
        self.keyless = False

    def change(self) -> None:
        """Now and then a topic refuses other letters than before."""
        if not self._on or self._random.random() >= _RATE:
            return
        log, topic = self._world.log, self._random.choice(_TOPICS)
        if self._random.random() < 0.3:
            self._world.fault("topic takes none without a key", topic)
            log.needs_key ^= {topic}
            self.keyless = True
            return
        letters = [record for name in DEAD_LETTERS for record in log.read(name) if record.value() is not None]
        if letters:
            value = self._random.choice(letters).value()
            self._world.fault("topic refuses a letter", f"{topic} {value!r:.40}")
            log.invalid ^= {(topic, value)}
            self.values.add(value)

    def may_refuse(self, letter: MemoryRecord) -> bool:
        """Whether any topic may ever have refused a letter for what it is."""
        return letter.value() in self.values or (self.keyless and letter.key() is None)

    def end(self) -> None:
        """Topics where letters rest take everything from now on; of others some never do."""
        log = self._world.log
        log.needs_key = {topic for topic in log.needs_key if topic in _RETRY}
        log.invalid = {(topic, value) for topic, value in log.invalid if topic in _RETRY}
