"""Which original record a letter is an attempt of, and how many retries that record has had: by our own count.

In this order:

1. an outstanding send of the same dead-letter topic, key and value: whoever drops headers cannot begin anew
2. the sends that are on record under the id that came back: whoever forges the count cannot either
3. the header `retry-attempt`: the record is bounded, and may have forgotten

Where the policy asks for a count in the body and that says more, it counts: whoever writes there makes another body each time.

Where no `retry-id` came back, the id is made of the origin's coordinates and the consumer group, or else of key and value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import msgspec

from retry.dead_letters.dead_letter import Letter
from retry.dead_letters.failure import Failure
from retry.intake import attempts
from retry.intake.attempts import RecentLineages


class LetterHistory(msgspec.Struct, frozen=True, gc=False):
    """What is known of a letter's past.

    Attributes:
      id: the lineage, as the header `retry-id` has it.
      number: the same as a number.
      print: of dead-letter topic, key and value.
      made: retries made so far; None where a header says something that is no count, and nobody knows better.
      first_failed_ms: when the first attempt failed, if that is known.
      matched: it was recognised by its print.
    """

    id: bytes
    number: int
    print: int
    made: int | None
    first_failed_ms: int | None
    matched: bool


class LetterHistories(NamedTuple):
    """`LetterHistory` of many letters, by their positions; not of those that are `unfit` for being looked at together."""

    ids: Sequence[bytes]
    numbers: list[int]
    prints: list[int]
    unfit: list[int]


class AttemptCounter:
    """Traces letters with the record of recent lineages.

    Args:
      cluster_id: of the brokers, since coordinates mean something only within one cluster.
      retry_targets: topics that retries are sent to. Coordinates in one of them are those of a retry, not of the original.
      catch_up: brings `recent` up to date. A retry that was due at once may fail again before its send is on record here.
    """

    def __init__(
        self, recent: RecentLineages, cluster_id: str, retry_targets: Collection[str], catch_up: Callable[[], None] | None = None
    ) -> None:
        self._recent, self._cluster_id, self._retry_targets = recent, cluster_id, frozenset(retry_targets)
        self._matched: dict[int, int] = {}
        self._catch_up, self._is_current = catch_up, catch_up is None

    def begin(self) -> None:
        """A batch begins: what the last one matched has been folded, or will be read again."""
        self._matched.clear()
        self._is_current = self._catch_up is None

    def trace(self, letter: Letter, now_ms: int, window_ms: int) -> LetterHistory:
        """The past of a letter; sends of longer than `window_ms` ago are not taken for its own unless their id came back."""
        past = self._trace(letter, now_ms, window_ms)
        if letter.counted and past.made is not None and past.made < letter.counted - 1:
            return msgspec.structs.replace(past, made=letter.counted - 1)
        return past

    def _trace(self, letter: Letter, now_ms: int, window_ms: int) -> LetterHistory:
        payload = attempts.payload(letter.key, letter.value)
        print_ = attempts.fingerprint(letter.topic, payload)
        if letter.id is not None:
            return self._by_id(letter, letter.id, print_, now_ms, window_ms)
        failure = letter.failure
        placed = failure.origin_offset is not None
        if (not placed or failure.origin_topic in self._retry_targets) and (
            back := self._by_print(letter, print_, now_ms, window_ms)
        ):
            return back
        lineage = attempts.identity(self._cluster_id, failure, payload)
        number = attempts.counted(lineage, letter.topic)
        sends = self._recent.sends(number) if placed else None
        made, first_ms = letter.retries_made, letter.first_failed_at_ms
        if sends is not None:
            made, first_ms = sends.attempts, sends.first_failed_ms
        return LetterHistory(attempts.to_header(lineage), number, print_, made, first_ms, False)

    def lineages(self, failure: Failure) -> Callable[[int], int] | None:
        """Offset → lineage of letters about records of one partition; None where the letters do not say which."""
        topic, partition = failure.origin_topic, failure.origin_partition
        if topic is None or partition is None:
            return None
        return attempts.lineages_of(self._cluster_id, topic, partition, failure.consumer_group)

    def is_retry(self, failure: Failure) -> bool:
        """Whether the record that failed may be a retry, so that its coordinates are not those of the original."""
        return failure.origin_topic in self._retry_targets

    def first(
        self, topic: str, keys: Sequence[bytes | None], values: Sequence[bytes | None], lineages: Sequence[int] | None,
        is_retry: bool,
    ) -> LetterHistories:  # fmt: skip
        """Of letters without headers of ours, of one topic: unfit are those that may come back from a send that is on record.

        Args:
          lineages: by `lineages`; None where the letters have no offset of the record that failed.
          is_retry: by `is_retry`.
        """
        payloads = attempts.payloads(keys, values)
        prints = attempts.fingerprints(topic, payloads)
        unfit = self._recent.known(prints) if lineages is None or is_retry else []
        if lineages is None:
            lineages = attempts.silent(payloads)
            numbers = attempts.counted_all(lineages, topic)
        else:
            numbers = list(lineages)
            unfit += [n for n, lineage in enumerate(lineages) if self._recent.sends(lineage)]
        return LetterHistories([b"%016x" % lineage for lineage in lineages], numbers, prints, unfit)

    def again(
        self, topic: str, keys: Sequence[bytes | None], values: Sequence[bytes | None], ids: Sequence[bytes], made: int
    ) -> LetterHistories:
        """Of letters with headers of ours, of one topic: unfit are those of which another number of sends is on record.

        Args:
          ids: as they came back.
          made: how many retries they say they had.
        """
        prints = attempts.fingerprints(topic, attempts.payloads(keys, values))
        numbers = attempts.counted_all(map(attempts.from_header, ids), topic)
        sends = self._recent.sends
        known = {n: sends_of_one.attempts for n, number in enumerate(numbers) if (sends_of_one := sends(number))}
        unfit = [n for n, count in known.items() if count != made]
        if len(known) < len(numbers):
            # Without its id it may be known all the same.
            unfit += [n for n in self._recent.known(prints) if n not in known]
        return LetterHistories(ids, numbers, prints, unfit)

    def _by_print(self, letter: Letter, print_: int, now_ms: int, window_ms: int) -> LetterHistory | None:
        matched = self._matched.get(print_, 0)
        back = self._recent.returned(print_, now_ms, window_ms, matched)
        if back is None:
            return None
        self._matched[print_] = matched + 1
        id_ = attempts.to_header(attempts.counted(back.id, letter.topic))
        return LetterHistory(id_, back.id, print_, back.attempts, letter.first_failed_at_ms or back.first_failed_ms, True)

    def _by_id(self, letter: Letter, id_: bytes, print_: int, now_ms: int, window_ms: int) -> LetterHistory:
        """By the id that came back; one that nobody has sent is no reason to begin anew."""
        number, claimed = attempts.counted(attempts.from_header(id_), letter.topic), letter.retries_made
        sends = self._recent.sends(number)
        if sends is None:
            back = self._by_print(letter, print_, now_ms, window_ms)
            return back or LetterHistory(id_, number, print_, claimed, letter.first_failed_at_ms, False)
        # Equal letters share an id where they have no coordinates: then any count is right of which a send is out.
        if claimed == sends.attempts or (claimed and self._recent.is_out(print_, claimed, now_ms)):
            return LetterHistory(id_, number, print_, claimed, letter.first_failed_at_ms, False)
        if claimed and claimed > sends.attempts and not self._is_current and self._catch_up is not None:
            # Once a batch: whoever forges counts costs a look, and gains nothing.
            self._is_current = True
            self._catch_up()
            return self._by_id(letter, id_, print_, now_ms, window_ms)
        first_ms = letter.first_failed_at_ms or sends.first_failed_ms
        return LetterHistory(id_, number, print_, sends.attempts, first_ms, False)
