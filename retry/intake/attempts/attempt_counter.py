"""Which original record a letter is an attempt of, and how many retries that record has had: by our own count.

In this order:

1. an outstanding send of the same dead-letter topic, key and value: whoever drops headers cannot begin anew
2. the sends that are on record under the id that came back: whoever forges the count cannot either
3. the header `retry-attempt`: the record is bounded, and may have forgotten

Where the policy asks for a count in the body and that says more, it counts: whoever writes there makes another body each time.

Where no `retry-id` came back, the id is made of the consumer that failed and of the origin's coordinates, or else of dead-letter
topic, key and value.

All of this is asked of the sends of one team, which is that of the dead-letter topic: no letter can say anything of lineages of
another team. An id that the service did not give to this team's letters names the original record at most. It may be that of
another team whose retry this consumer has read, too. Its count is not believed: this team's consumer has had none of those
retries. But the number stays the same, so that letters that go round between two teams have an end with each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, cast

import msgspec

from retry.dead_letters.dead_letter import Letter
from retry.dead_letters.failure import Failure
from retry.intake import attempts
from retry.intake.attempts import RecentLineages
from retry.policies.route import Route


class LetterHistory(msgspec.Struct, frozen=True, gc=False):
    """The past of one letter, as far as it is known.

    Attributes:
      id, number: the lineage, as the header `retry-id` has it, and as a number.
      print: the fingerprint of dead-letter topic, key and value.
      made: retries made so far; None where a header says something that is no count, and nobody knows better.
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
      retry_targets: by team, the topics that its retries are sent to: coordinates there are those of a retry, not the original's.
      catch_up: brings `recent` up to date. A retry that was due at once may fail again before its send is on record here.
    """

    def __init__(
        self, recent: RecentLineages, cluster_id: str, retry_targets: Mapping[str, Collection[str]],
        catch_up: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self._recent, self._cluster_id, self._retry_targets = recent, cluster_id, retry_targets
        # How many letters of a team, with a fingerprint, this batch has matched.
        self._matched: dict[tuple[str, int], int] = {}
        self._catch_up, self._is_current = catch_up, catch_up is None

    def begin_batch(self) -> None:
        """Begin a batch, and forget what the last one matched, which has been folded or will be read again."""
        self._matched.clear()
        self._is_current = self._catch_up is None

    def trace(self, letter: Letter, route: Route, now_ms: int) -> LetterHistory:
        """Find the past of a letter: its lineage, and how many retries were made so far.

        A send older than its policy's `max_age` is not taken for the letter's own unless the id came back.
        """
        past = self._trace(letter, route, now_ms)
        if letter.counted and past.made is not None and past.made < letter.counted - 1:
            return msgspec.structs.replace(past, made=letter.counted - 1)
        return past

    def _trace(self, letter: Letter, route: Route, now_ms: int) -> LetterHistory:
        print_ = attempts.make_fingerprint(letter.topic, attempts.hash_payload(letter.key, letter.value))
        if letter.id is not None:
            if attempts.belongs_to(letter.id, route.team):
                return self._by_id(letter, letter.id, route, print_, now_ms)
            return self._trace_foreign_id(letter, letter.id, route, print_, now_ms)
        if back := self._match_print_of_retry(letter, route, print_, now_ms):
            return back
        failure = letter.failure
        consumer = attempts.describe_failing_consumer(route.team, failure.consumer_group or route.group, letter.topic)
        number = attempts.find_lineage(self._cluster_id, consumer, failure, print_)
        sends = None if failure.origin_offset is None else self._recent.find_team(route.team).sends(number)
        made, first_ms = letter.retries_made, letter.first_failed_at_ms
        if sends is not None:
            made, first_ms = sends.attempts, sends.first_failed_ms
        return LetterHistory(attempts.format_retry_id(number, route.team), number, print_, made, first_ms, False)

    def lineages(self, failure: Failure, route: Route, dead_letters: str) -> Callable[[int], int] | None:
        """Return a function from offset to lineage, for letters about records of one partition; None where they name none."""
        topic, partition = failure.origin_topic, failure.origin_partition
        if topic is None or partition is None:
            return None
        consumer = attempts.describe_failing_consumer(route.team, failure.consumer_group or route.group, dead_letters)
        return attempts.make_lineages(self._cluster_id, consumer, topic, partition)

    def is_retry(self, failure: Failure, team: str) -> bool:
        """Whether the record that failed may be a retry, so that its coordinates are not those of the original."""
        return failure.origin_topic in self._retry_targets.get(team, ())

    def trace_first_letters(
        self, team: str, topic: str, keys: Sequence[bytes | None], values: Sequence[bytes | None], *,
        lineages: Sequence[int] | None, is_retry: bool,
    ) -> LetterHistories:  # fmt: skip
        """Trace letters of one topic without headers of ours; `unfit` are those that may come back from a send on record.

        `lineages` are None where the letters have no offset of the record that failed.
        """
        recent = self._recent.find_team(team)
        prints = attempts.make_fingerprints(topic, attempts.hash_payloads(keys, values))
        unfit = recent.list_known(prints) if lineages is None or is_retry else []
        if lineages is None:
            numbers = prints
        else:
            numbers, sends = list(lineages), recent.sends
            unfit += [n for n, lineage in enumerate(numbers) if sends(lineage)]
        return LetterHistories(attempts.format_retry_ids(numbers, team), numbers, prints, unfit)

    def again(
        self, team: str, topic: str, keys: Sequence[bytes | None], values: Sequence[bytes | None], ids: Sequence[bytes], *,
        made: int,
    ) -> LetterHistories:  # fmt: skip
        """Trace letters of one topic with headers of ours, which say that they had so many retries (`made`).

        Those are `unfit` of which another number of sends is on record, or only the fingerprint, and those whose id is not of the
        team.
        """
        recent = self._recent.find_team(team)
        prints = attempts.make_fingerprints(topic, attempts.hash_payloads(keys, values))
        numbers = attempts.parse_retry_ids(ids, team)
        if None in numbers:
            # None of the others' numbers is used: what is unfit is left out, and all is asked again.
            return LetterHistories(ids, [], prints, [n for n, number in enumerate(numbers) if number is None])
        own = cast(list[int], numbers)
        sends = recent.sends
        known = {n: sends_of_one.attempts for n, number in enumerate(own) if (sends_of_one := sends(number))}
        unfit = [n for n, count in known.items() if count != made]
        if len(known) < len(own):
            # Without its id it may be known all the same.
            unfit += [n for n in recent.list_known(prints) if n not in known]
        return LetterHistories(ids, own, prints, unfit)

    def _match_print_of_retry(self, letter: Letter, route: Route, print_: int, now_ms: int) -> LetterHistory | None:
        failure = letter.failure
        if failure.origin_offset is not None and not self.is_retry(failure, route.team):
            return None
        return self._by_print(letter, route, print_, now_ms)

    def _by_print(self, letter: Letter, route: Route, print_: int, now_ms: int) -> LetterHistory | None:
        place = route.team, print_
        matched, window_ms = self._matched.get(place, 0), route.default_plan.policy.max_age_ms
        back = self._recent.find_team(route.team).find_returned(print_, now_ms, window_ms, matched)
        if back is None:
            return None
        self._matched[place] = matched + 1
        id_ = attempts.format_retry_id(back.id, route.team)
        return LetterHistory(id_, back.id, print_, back.attempts, letter.first_failed_at_ms or back.first_failed_ms, True)

    def _by_id(self, letter: Letter, id_: bytes, route: Route, print_: int, now_ms: int) -> LetterHistory:
        number, claimed = attempts.parse_retry_id(id_), letter.retries_made
        recent = self._recent.find_team(route.team)
        sends = recent.sends(number)
        if sends is None:
            back = self._by_print(letter, route, print_, now_ms)
            return back or LetterHistory(id_, number, print_, claimed, letter.first_failed_at_ms, False)
        # Equal letters share an id where they have no coordinates: then any count is right of which a send is out.
        if claimed == sends.attempts or (claimed and recent.is_out(print_, claimed, now_ms)):
            return LetterHistory(id_, number, print_, claimed, letter.first_failed_at_ms, False)
        if claimed and claimed > sends.attempts and not self._is_current and self._catch_up is not None:
            # Once a batch: whoever forges counts costs a look, and gains nothing.
            self._is_current = True
            self._catch_up()
            return self._by_id(letter, id_, route, print_, now_ms)
        first_ms = letter.first_failed_at_ms or sends.first_failed_ms
        return LetterHistory(id_, number, print_, sends.attempts, first_ms, False)

    def _trace_foreign_id(self, letter: Letter, id_: bytes, route: Route, print_: int, now_ms: int) -> LetterHistory:
        number = attempts.parse_retry_id(id_)
        own_id = attempts.format_retry_id(number, route.team)
        if sends := self._recent.find_team(route.team).sends(number):
            return LetterHistory(own_id, number, print_, sends.attempts, sends.first_failed_ms, False)
        if back := self._match_print_of_retry(letter, route, print_, now_ms):
            return back
        # What is no count is told all the same.
        return LetterHistory(own_id, number, print_, None if letter.retries_made is None else 0, None, False)
