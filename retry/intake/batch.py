"""Letters that were read together, on their way through intake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, Message

from retry.errors import TransactionAborted
from retry.intake.settled import Settled


class Batch(NamedTuple):
    """Letters in the order in which they were read, and where reading goes on after them.

    Attributes:
      epoch: how often reading had begun anew by then.
      made_anew: tells which of their topics were deleted and made again before the letters were read; see `Member.ask_anew`.
    """

    epoch: int
    messages: list[Message]
    positions: list[Any]
    topics: frozenset[str]
    made_anew: Callable[[], list[str]]

    def confirm(self) -> None:
        """See that the letters are of the topics that are there now.

        Raises:
          TransactionAborted: they are not, or nobody can tell.
        """
        try:
            others = self.made_anew()
        except (KafkaException, TimeoutError) as error:
            raise TransactionAborted(f"cannot ask whether topics are still the same: {error}") from error
        if others:
            raise TransactionAborted(f"deleted and made again: {', '.join(others)}")

    def handed_over(self) -> Iterator[Message]:
        """The messages, of which none is kept: what was just read is at hand, and later costs far more to touch and let go."""
        self.messages.reverse()
        while self.messages:
            yield self.messages.pop()


class Decided(NamedTuple):
    """A batch and what is to be written for it."""

    batch: Batch
    settled: Settled
