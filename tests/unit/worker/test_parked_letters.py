"""Records of parking topics are read off the sweep's thread: those that are asked for, of the topic that is meant, whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from retry.clock import Deadline, pause
from retry.delay_queue import returned_offsets
from retry.delay_queue.returned_offsets import ParkedPlace
from retry.errors import RightMissing, TopicsInvalid
from retry.intake import attempts
from retry.record import RecordLocation
from retry.worker.parked_letters import ParkedLetters, ReferenceClaim
from tests.support.acted import DISCARDED, NOW_MS, POLICIES
from tests.support.plans import registry_of
from tests.support.rested import PARKED_AT, PARKING, dead, park_letter, place

IDS = {"orders.parked": "id of orders.parked"}
ID = attempts.format_retry_id(7, "orders").decode()


def parked_letters(fetch: Any, topic_ids: Any, prove: Any = None, again_s: float = 0.0) -> ParkedLetters:
    """Under the policies of tests; by default the outcomes tell of all that was parked by reference."""
    prove = prove or (lambda claims, _deadline: [True] * len(claims))
    return ParkedLetters(fetch, topic_ids, lambda: registry_of(POLICIES), prove, DISCARDED, again_s=again_s)


class Topics:
    """The topics: what lies where, and what was asked for."""

    def __init__(self, records: Mapping[RecordLocation, Any], ids: Mapping[str, str] = IDS) -> None:
        self.records, self.ids, self.asked = records, ids, list[set[RecordLocation]]()
        self.letters = parked_letters(self.fetch, lambda topics: {name: ids[name] for name in topics if name in ids})

    def fetch(self, wanted: Collection[RecordLocation]) -> dict[RecordLocation, Any]:
        self.asked.append(set(wanted))
        return {at: self.records.get(at, "source_gone") for at in wanted}


AT = ("orders.parked", 0, PARKED_AT)


def test_a_record_is_found_and_is_whole() -> None:
    record = park_letter()
    topics = Topics({AT: record})
    assert topics.letters.read_records(PARKING, [place()]) == {place(): (record, record)}


def test_what_lies_nowhere_is_gone() -> None:
    assert Topics({}).letters.read_records(PARKING, [place()]) == {place(): "gone"}


@pytest.mark.parametrize("ids", [{}, {"orders.parked": "id of a topic made anew"}])
def test_a_topic_that_is_another_one_now_is_not_read(ids: dict[str, str]) -> None:
    topics = Topics({AT: park_letter()}, ids)
    assert topics.letters.read_records(PARKING, [place()]) == {place(): "gone"}
    assert topics.asked == []


def test_a_reference_is_fetched_whole_from_where_it_failed() -> None:
    whole = dead(value=b"v" * 5_000)
    record = park_letter(whole, made=0, bytes_max=1_000)
    topics = Topics({AT: record, ("orders.DLT", 0, 7): whole})
    assert topics.letters.read_records(PARKING, [place()]) == {place(): (record, whole)}
    assert topics.asked == [{AT}, {("orders.DLT", 0, 7)}]


def test_a_reference_whose_letter_is_gone_is_never_a_null() -> None:
    record = park_letter(dead(value=b"v" * 5_000), made=0, bytes_max=1_000)
    assert Topics({AT: record}).letters.read_records(PARKING, [place()]) == {place(): "source_gone"}


@pytest.mark.parametrize(("proven", "told"), [(False, "not_ours"), (None, "source_unreadable")])
def test_a_reference_of_which_no_outcome_tells_is_not_followed(proven: bool | None, told: str) -> None:
    whole = dead(value=b"v" * 5_000)
    record, topics = park_letter(whole, made=0, bytes_max=1_000), Topics({})
    topics.records = {AT: record, ("orders.DLT", 0, 7): whole}
    asked: list[Any] = []

    def prove(claims: Any, _deadline: Deadline) -> list[bool | None]:
        asked.extend(claims)
        return [proven] * len(claims)

    letters = parked_letters(topics.fetch, lambda _topics: IDS, prove)
    assert letters.read_records(PARKING, [place()]) == {place(): told}
    # Nothing is read from where it says that it failed.
    assert topics.asked == [{AT}]
    assert asked == [ReferenceClaim("orders.DLT/0/7", ID, "orders.parked", NOW_MS)]


@pytest.mark.parametrize("error", [TopicsInvalid(["no answer"], "look"), RightMissing("read", "grant")])
def test_a_reference_is_not_followed_where_the_outcomes_cannot_be_read(error: Exception) -> None:
    topics = Topics({AT: park_letter(dead(value=b"v" * 5_000), made=0, bytes_max=1_000)})

    def prove(_claims: Any, _deadline: Deadline) -> list[bool | None]:
        raise error

    letters = parked_letters(topics.fetch, lambda _topics: IDS, prove)
    assert letters.read_records(PARKING, [place()]) == {place(): "source_unreadable"}


def test_of_large_letters_only_the_first_are_read() -> None:
    small, large = park_letter(), park_letter(dead(value=b"v" * 500_000))
    places = [place(n) for n in range(120)]
    for record, questions in ((small, [50, 70]), (large, [50])):
        topics = Topics({("orders.parked", 0, n): record for n in range(120)})
        assert list(topics.letters.read_records(PARKING, places)) == places[: sum(questions)]
        assert [len(asked) for asked in topics.asked] == questions


def test_small_letters_are_asked_for_twice_as_many_at_a_time() -> None:
    topics = Topics({("orders.parked", 0, n): park_letter() for n in range(500)})
    assert len(topics.letters.read_records(PARKING, [place(n) for n in range(500)])) == 500
    assert [len(asked) for asked in topics.asked] == [50, 100, 200, 150]


def await_answer(letters: ParkedLetters, *places: bytes) -> Any:
    """The answer, when it is there."""
    deadline = Deadline(30.0)
    while (found := letters.request_records(PARKING, places)) is None:
        assert not deadline.has_passed()
        pause(0.001)
    return found


def test_whoever_asks_comes_back_for_the_answer_and_each_answer_is_given_once() -> None:
    record = park_letter()
    topics = Topics({AT: record})
    assert topics.letters.request_records(PARKING, [place()]) is None
    assert await_answer(topics.letters, place()) == {place(): (record, record)}
    other = ParkedPlace(returned_offsets.decode_place(place()).topic, 0, PARKED_AT + 1).encode()
    assert topics.letters.request_records(PARKING, [other]) is None
    assert await_answer(topics.letters, other) == {other: "gone"}
    assert len(topics.asked) == 2


def test_what_went_wrong_while_reading_is_raised_where_it_is_asked_for() -> None:
    topics = Topics({})

    def broken(_wanted: Collection[RecordLocation]) -> dict[RecordLocation, Any]:
        raise OSError("no broker")

    letters = parked_letters(broken, lambda names: topics.ids)
    with pytest.raises(OSError, match="no broker"):
        await_answer(letters, place())
    # The next question is a new one.
    assert letters.request_records(PARKING, [place()]) is None


@pytest.mark.parametrize("error", [KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN)), TimeoutError("no answer")])
@pytest.mark.parametrize("failures", [4, 5])
def test_brokers_that_do_not_answer_are_asked_again_and_end_no_worker(error: Exception, failures: int) -> None:
    record, failed = park_letter(), list[Exception]()

    def ids(_topics: list[str]) -> Mapping[str, str]:
        if len(failed) < failures:
            failed.append(error)
            raise error
        return IDS

    letters = parked_letters(lambda wanted: dict.fromkeys(wanted, record), ids)
    assert await_answer(letters, place()) == {place(): (record, record) if failures == 4 else "source_unreadable"}


@pytest.mark.parametrize("failures", [4, 5])
def test_a_record_that_could_not_be_read_is_read_again_before_it_counts_as_unreadable(failures: int) -> None:
    record, topics = park_letter(), Topics({AT: "source_unreadable"})

    def fetch(wanted: Collection[RecordLocation]) -> dict[RecordLocation, Any]:
        if len(topics.asked) == failures:
            topics.records = {AT: record}
        return topics.fetch(wanted)

    letters = parked_letters(fetch, lambda _topics: IDS)
    assert await_answer(letters, place()) == {place(): (record, record) if failures == 4 else "source_unreadable"}
    # Whoever asks once more is given as many tries.
    assert await_answer(letters, place()) == {place(): (record, record)}


def test_brokers_are_left_alone_for_a_while_unless_something_else_is_asked() -> None:
    topics = Topics({AT: "source_unreadable"})
    letters = parked_letters(topics.fetch, lambda _topics: IDS, again_s=3_600.0)
    deadline = Deadline(30.0)
    while not topics.asked:
        assert letters.request_records(PARKING, [place()]) is None
        assert not deadline.has_passed()
    for _ in range(50):
        assert letters.request_records(PARKING, [place()]) is None
        pause(0.001)
    assert len(topics.asked) == 1
    other = place(PARKED_AT + 1)
    assert await_answer(letters, other) == {other: "gone"}
    assert len(topics.asked) == 2
