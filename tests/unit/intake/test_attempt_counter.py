"""A letter's past: known by its id, its print or its place, and never shorter than what was sent."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import Letter, read
from retry.delay_queue.envelopes import Entry
from retry.intake import attempts
from retry.intake.attempts import RecentLineages
from retry.intake.attempts.attempt_counter import AttemptCounter, LetterHistory
from retry.record import Headers
from retry.testing.kafka import MemoryRecord
from tests.support.plans import registry_of

NOW_MS = 1_700_000_000_000
DELAY_MS, DAY_MS = 10_000, 86_400_000
MAX_ATTEMPTS = 4
RETRY = "orders.retry"
POLICIES = """
defaults: {backoff: {kind: constant, delay: 10s}, max_attempts: 4, max_age: 1d}
teams:
  shop:
    topics:
      - {dead_letters: orders.DLT, retry_to: orders.retry}
      - {dead_letters: orders.retry.DLT, retry_to: orders.retry}
      - {dead_letters: other.DLT, retry_to: other.retry}
      - {dead_letters: billing.DLT, retry_to: billing.retry, group: billing}
      - {dead_letters: billing.retry.DLT, retry_to: billing.retry, group: billing}
  stock:
    topics:
      - {dead_letters: stock.DLT, retry_to: stock.retry}
      - {dead_letters: stock.billing.DLT, retry_to: stock.retry, group: billing}
"""
REGISTRY = registry_of(POLICIES)
OF_ORDERS = attempts.describe_failing_consumer("shop", None, "orders.DLT")


def place(topic: str, offset: int) -> Headers:
    """Make the headers with which Spring says where the record lay that failed."""
    return [
        ("kafka_dlt-original-topic", topic.encode()),
        ("kafka_dlt-original-partition", (0).to_bytes(4, "big")),
        ("kafka_dlt-original-offset", offset.to_bytes(8, "big")),
    ]


def letter(headers: Headers, key: bytes | None = b"k", value: bytes | None = b"v", topic: str = "orders.DLT") -> Letter:
    return read(MemoryRecord(Entry(topic, key, value, headers, None, ""), 0, 0, NOW_MS))


class Service:
    """Traces letters, and remembers what it sent as intake does: one packed record a batch."""

    def __init__(self) -> None:
        self.recent = RecentLineages(10_000)
        self.attempt_counter = AttemptCounter(self.recent, "cluster", REGISTRY.retry_targets_by_team(), self.catch_up)
        self.late, self.looks = list[bytes](), 0
        self.now_ms = NOW_MS

    def catch_up(self) -> None:
        """Read what was written and not read yet."""
        self.looks += 1
        for packed in self.late:
            self.recent.apply_batch(packed)
        self.late.clear()

    def trace(self, *letters: Letter) -> list[LetterHistory]:
        """One batch, of which nothing is sent."""
        self.attempt_counter.begin_batch()
        return [self.attempt_counter.trace(each, REGISTRY.route(each.topic), self.now_ms) for each in letters]

    def send(self, *letters: Letter) -> list[Headers]:
        """One batch; the headers of the retries, empty for what is parked. It is due when this returns."""
        rows: dict[str, list[attempts.LineageFields]] = {}
        sent, due_ms = [], self.now_ms + DELAY_MS
        for each, trace in zip(letters, self.trace(*letters), strict=True):
            attempt = 0 if trace.made is None or trace.made >= MAX_ATTEMPTS else trace.made + 1
            first_ms = trace.first_failed_ms or self.now_ms
            row = attempts.build_fields(trace.number, trace.print, due_ms, first_ms, attempt, trace.matched)
            rows.setdefault(REGISTRY.route(each.topic).team, []).append(row)
            told = {names.ID: trace.id, names.ATTEMPT: b"%d" % attempt, names.DUE_MS: b"%d" % due_ms,
                    names.FIRST_FAILED_MS: b"%d" % first_ms}  # fmt: skip
            sent.append(list(told.items()) if attempt else [])
        for team, told in rows.items():
            self.recent.apply_batch(attempts.pack(team, told))
        self.now_ms = due_ms + 1_000
        return sent


@pytest.fixture
def service() -> Service:
    return Service()


def test_a_letter_that_was_never_seen_begins_at_its_first_retry(service: Service) -> None:
    (trace,) = service.trace(letter(place("orders", 5)))
    assert (trace.made, trace.first_failed_ms, trace.matched) == (0, None, False)
    assert trace.id == attempts.format_retry_id(attempts.make_lineage("cluster", OF_ORDERS, "orders", 0, 5), "shop")


def test_an_id_that_came_back_is_the_lineage(service: Service) -> None:
    (back,) = service.send(letter(place("orders", 5)))
    (trace,) = service.trace(letter(back))
    assert (trace.id, trace.made, trace.first_failed_ms) == (dict(back)[names.ID], 1, NOW_MS)


def test_an_id_that_nobody_remembers_is_taken_at_its_word(service: Service) -> None:
    id_ = attempts.format_retry_id(0xDEADBEEF, "shop")
    (trace,) = service.trace(letter([(names.ID, id_), (names.ATTEMPT, b"3")]))
    assert (trace.id, trace.number, trace.made) == (id_, 0xDEADBEEF, 3)


@pytest.mark.parametrize("forged", [b"0", b"1", b"99", b"", b"-1", b"two", None, "missing"])
def test_of_a_lineage_that_is_known_only_the_own_count_counts(service: Service, forged: bytes | str | None) -> None:
    (back,) = service.send(letter([]))
    (back,) = service.send(letter(back))
    told = [header for header in back if header[0] != names.ATTEMPT]
    if not isinstance(forged, str):
        told.append((names.ATTEMPT, forged))
    (trace,) = service.trace(letter(told))
    assert (trace.id, trace.made, trace.first_failed_ms) == (dict(back)[names.ID], 2, NOW_MS)


def test_a_send_that_is_not_on_record_yet_is_looked_for(service: Service) -> None:
    (first,) = service.send(letter(place("orders", 5)))
    (traced,) = service.trace(letter(first))
    due_ms = service.now_ms - 1_000
    service.late.append(attempts.pack("shop", [attempts.build_fields(traced.number, traced.print, due_ms, NOW_MS, 2, False)]))
    second = letter([*first, (names.ATTEMPT, b"2")])
    assert [each.made for each in service.trace(second)] == [2]
    assert service.looks == 1


def test_whoever_forges_counts_costs_one_look_a_batch(service: Service) -> None:
    (first,) = service.send(letter(place("orders", 5)))
    forged = letter([*first, (names.ATTEMPT, b"9")])
    assert [each.made for each in service.trace(forged, forged, forged)] == [1, 1, 1]
    assert service.looks == 1
    service.trace(letter(first))
    assert service.looks == 1


def test_a_count_that_is_none_is_told_where_nobody_knows_better(service: Service) -> None:
    with_id, without = letter([(names.ID, b"x"), (names.ATTEMPT, b"two")]), letter([(names.ATTEMPT, b"")])
    assert [each.made for each in service.trace(with_id, without)] == [None, None]


def test_the_first_failure_is_the_recorded_one_where_the_letter_is_not_believed(service: Service) -> None:
    service.send(letter([]))
    (trace,) = service.trace(letter([(names.ID, service.trace(letter([]))[0].id)]))
    assert trace.first_failed_ms == NOW_MS


# --- headers that are gone ---


def test_without_headers_it_is_known_by_what_it_is_once_it_was_due(service: Service) -> None:
    (back,) = service.send(letter([], b"k", b"v"))
    due_ms = int(dict(back)[names.DUE_MS] or 0)
    for now_ms, made in ((due_ms - 1_000, 0), (due_ms, 1)):
        service.now_ms = now_ms
        (trace,) = service.trace(letter([], b"k", b"v"))
        assert (trace.made, trace.matched) == (made, bool(made))
    assert (trace.id, trace.first_failed_ms) == (dict(back)[names.ID], NOW_MS)


@pytest.mark.parametrize("other", [{"key": b"K"}, {"key": None}, {"value": b""}, {"value": None}, {"topic": "other.DLT"}])
def test_what_differs_is_another_letter(service: Service, other: dict[str, bytes | None]) -> None:
    service.send(letter([]))
    (trace,) = service.trace(letter([], **other))  # type: ignore[arg-type]
    assert (trace.made, trace.matched) == (0, False)


def test_more_equal_letters_than_were_sent_are_new_ones(service: Service) -> None:
    service.send(letter([]), letter([]))
    assert [(each.made, each.matched) for each in service.trace(*[letter([])] * 4)] == [(1, True)] * 2 + [(0, False)] * 2


def test_what_one_batch_matched_the_next_may_match_when_it_is_read_again(service: Service) -> None:
    service.send(letter([]))
    assert [service.trace(letter([]))[0].made for _ in range(2)] == [1, 1]


def test_a_return_is_taken_once(service: Service) -> None:
    service.send(letter([]))
    service.send(letter([]))  # It is the return of the first one …
    assert [each.made for each in service.trace(letter([]), letter([]))] == [2, 0]  # … and only one is out.


@pytest.mark.parametrize(("age_ms", "matched"), [(-DELAY_MS, True), (1_000, False)])
def test_a_send_of_too_long_ago_is_no_letter_s_own(service: Service, age_ms: int, matched: bool) -> None:
    service.send(letter([]))
    service.now_ms = NOW_MS + DAY_MS + age_ms
    (trace,) = service.trace(letter([]))
    assert (trace.matched, trace.made) == (matched, int(matched))


def test_an_id_is_known_however_long_ago_it_was_sent(service: Service) -> None:
    (back,) = service.send(letter([]))
    service.now_ms = NOW_MS + 10 * DAY_MS
    (trace,) = service.trace(letter([(names.ID, dict(back)[names.ID])]))
    assert trace.made == 1


# --- places ---


def test_a_place_in_a_retry_topic_is_that_of_a_retry(service: Service) -> None:
    (back,) = service.send(letter(place("orders", 5)))
    (trace,) = service.trace(letter(place(RETRY, 77)))
    assert (trace.id, trace.made, trace.matched) == (dict(back)[names.ID], 1, True)


def test_an_equal_record_from_another_place_is_a_fresh_letter(service: Service) -> None:
    service.send(letter(place("orders", 5)))
    (trace,) = service.trace(letter(place("orders", 6)))
    assert (trace.made, trace.matched) == (0, False)
    assert trace.id == attempts.format_retry_id(attempts.make_lineage("cluster", OF_ORDERS, "orders", 0, 6), "shop")


def test_a_place_that_is_known_needs_no_id(service: Service) -> None:
    """The framework says where the original lay, even of its retry."""
    (back,) = service.send(letter(place("orders", 5)))
    (trace,) = service.trace(letter(place("orders", 5), value=b"changed"))
    assert (trace.id, trace.made, trace.matched, trace.first_failed_ms) == (dict(back)[names.ID], 1, False, NOW_MS)


# --- whose letters ---

OFFSETS = range(5)
# What a framework says of where the record lay that failed, and nothing of who failed.
PLACED = {"with places": lambda n: place("orders", n), "without": lambda n: []}


def failing(service: Service, topic: str, headers: Callable[[int], Headers], times: int) -> list[Headers]:
    """Letters of some records that fail so often; what their last retries carry."""
    back = [headers(n) for n in OFFSETS]
    for _ in range(times):
        back = service.send(*[letter(told, value=b"%d" % n, topic=topic) for n, told in zip(OFFSETS, back, strict=True)])
    return back


@pytest.mark.parametrize("placed", PLACED)
@pytest.mark.parametrize(("one", "other"), [
    ("orders.DLT", "stock.DLT"), ("stock.DLT", "orders.DLT"), ("billing.DLT", "stock.billing.DLT"), ("orders.DLT", "other.DLT"),
    ("orders.DLT", "billing.DLT"),
])  # fmt: skip
def test_first_failures_of_one_consumer_are_no_attempts_of_another_s(
    service: Service, placed: str, one: str, other: str
) -> None:
    failing(service, one, PLACED[placed], MAX_ATTEMPTS + 1)
    new = service.trace(*[letter(PLACED[placed](n), value=b"%d" % n, topic=other) for n in OFFSETS])
    assert [(each.made, each.matched) for each in new] == [(0, False)] * len(OFFSETS)
    ids = {trace.id for topic in (one, other) for trace in service.trace(letter(PLACED[placed](0), value=b"0", topic=topic))}
    assert len(ids) == 2


@pytest.mark.parametrize("attempt", [b"0", b"4", b"99"])
def test_an_id_that_another_team_s_letter_has_takes_none_of_its_attempts(service: Service, attempt: bytes) -> None:
    (back,) = service.send(letter(place("orders", 5)))
    stolen: Headers = [(names.ID, dict(back)[names.ID]), (names.ATTEMPT, attempt)]
    for _ in range(MAX_ATTEMPTS + 1):
        service.send(letter(stolen, topic="stock.DLT"))
    (trace,) = service.trace(letter(back))
    assert (trace.id, trace.made, trace.first_failed_ms) == (dict(back)[names.ID], 1, NOW_MS)


def test_coordinates_of_records_that_have_not_failed_yet_take_no_attempts_of_another_team(service: Service) -> None:
    failing(service, "stock.DLT", PLACED["with places"], MAX_ATTEMPTS + 1)
    assert [each.made for each in service.trace(*[letter(place("orders", n), value=b"v%d" % n) for n in OFFSETS])] == [0] * 5


def test_a_retry_of_one_team_that_another_one_fails_on_begins_anew_there_and_has_an_end(service: Service) -> None:
    """Both read the topic that both retry to, and both fail on whatever lies there."""
    waiting, sends, ids = [(place("orders", 5), "orders.DLT")], 0, set[bytes]()
    while waiting:
        back = service.send(*[letter(headers, topic=topic) for headers, topic in waiting])
        sent = [headers for headers in back if headers]
        sends += len(sent)
        ids |= {dict(headers)[names.ID] or b"" for headers in sent}
        waiting = [(headers, topic) for headers in sent for topic in ("orders.DLT", "stock.DLT")]
        assert sends <= 4 * MAX_ATTEMPTS
    assert sends >= 2 * MAX_ATTEMPTS
    assert {attempts.belongs_to(id_, team) for id_ in ids for team in ("shop",)} == {True, False}
    assert len({attempts.parse_retry_id(id_) for id_ in ids}) == 1


def test_what_another_team_s_retry_says_of_itself_is_not_believed(service: Service) -> None:
    theirs = failing(service, "stock.DLT", PLACED["with places"], 3)[0]
    (trace,) = service.trace(letter([*place("stock.retry", 3), *theirs], value=b"0"))
    assert (trace.made, trace.first_failed_ms, attempts.belongs_to(trace.id, "shop")) == (0, None, True)


@pytest.mark.parametrize("text", [b"order-17", b"0" * 16, b"0" * 24])
def test_an_id_that_a_consumer_makes_up_is_the_name_of_the_record_and_its_attempts_are_counted(
    service: Service, text: bytes
) -> None:
    made = []
    for n in range(MAX_ATTEMPTS + 1):
        (trace,) = service.trace(letter([(names.ID, text), (names.ATTEMPT, b"0")], value=b"%d" % n))
        service.send(letter([(names.ID, text), (names.ATTEMPT, b"0")], value=b"%d" % n))
        made.append(trace.made)
    assert made == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("first", "then", "headers", "placed"), [
    *[(f"{name}.DLT", f"{name}.retry.DLT", "kept", placed) for name in ("orders", "billing") for placed in PLACED],
    ("billing.DLT", "billing.retry.DLT", "places", "with places"),
])  # fmt: skip
def test_chained_retry_topics_of_one_team_are_one_lineage(
    service: Service, first: str, then: str, headers: str, placed: str
) -> None:
    """Told by the id that came back; or, where a group is named, by the place of the original."""
    (back,) = service.send(letter(PLACED[placed](5), topic=first))
    id_, made = dict(back)[names.ID], []
    while back:
        told = back if headers == "kept" else PLACED[placed](5)
        (trace,) = service.trace(letter(told, topic=then))
        (back,) = service.send(letter(told, topic=then))
        assert trace.id == id_
        made.append(trace.made)
    assert made == [1, 2, 3, 4]


# --- equal letters ---


def test_ten_equal_letters_come_back_from_their_first_retry_and_go_to_their_second(service: Service) -> None:
    returned = service.send(*[letter([])] * 10)
    assert {dict(back)[names.ATTEMPT] for back in returned} == {b"1"}
    returned = service.send(*map(letter, returned))
    assert [dict(back)[names.ATTEMPT] for back in returned] == [b"2"] * 10
    assert [each.made for each in service.trace(*map(letter, returned))] == [2] * 10


def test_equal_letters_at_different_attempts_keep_each_its_own_count(service: Service) -> None:
    one, other = service.send(letter([]), letter([]))
    (one,) = service.send(letter(one))
    assert [each.made for each in service.trace(letter(other), letter(one))] == [1, 2]


# --- loops ---

Consumer = Callable[[Headers, bytes, int], tuple[Headers, bytes]]


def keep_all(headers: Headers, value: bytes, turn: int) -> tuple[Headers, bytes]:
    return headers, value


def strip_headers(headers: Headers, value: bytes, turn: int) -> tuple[Headers, bytes]:
    return [], value


def state_anew(headers: Headers, value: bytes, turn: int) -> tuple[Headers, bytes]:
    return place(RETRY, turn), value


def forge_headers(headers: Headers, value: bytes, turn: int) -> tuple[Headers, bytes]:
    return [(name, b"0" if name == names.ATTEMPT else told) for name, told in headers], value


def drop_count(headers: Headers, value: bytes, turn: int) -> tuple[Headers, bytes]:
    return [header for header in headers if header[0] == names.ID], value


def change_headers(headers: Headers, value: bytes, turn: int) -> tuple[Headers, bytes]:
    return forge_headers(headers, b"changed %d" % turn, turn)


def fickle(headers: Headers, value: bytes, turn: int) -> tuple[Headers, bytes]:
    return (strip_headers, forge_headers, keep_all, state_anew)[turn % 4](headers, value, turn)


def sends(service: Service, consumer: Consumer, letters: int, placed: bool) -> int:
    """How often letters are sent altogether until all are parked; half of them in a batch, wherever that cuts."""
    turns, sent = count(), 0
    waiting = [letter(place("orders", n) if placed else []) for n in range(letters)]
    for _ in range(5 * MAX_ATTEMPTS):
        # But new ones all at once: where others are due already, nothing tells a new one from a return.
        cut = (len(waiting) + 1) // 2 if sent else letters
        returned = [headers for half in (waiting[:cut], waiting[cut:]) if half for headers in service.send(*half) if headers]
        sent += len(returned)
        came_back = [consumer(headers, b"v", next(turns)) for headers in returned]
        waiting = [letter(headers, value=value) for headers, value in came_back]
    assert waiting == []
    return sent


@pytest.mark.parametrize("consumer", [keep_all, strip_headers, state_anew, forge_headers, drop_count, change_headers])
@pytest.mark.parametrize("letters", [1, 7], ids=["one letter", "equal letters"])
@pytest.mark.parametrize("placed", [True, False], ids=["with places", "without"])
def test_whatever_comes_back_no_letter_is_sent_too_often(
    service: Service, consumer: Consumer, letters: int, placed: bool
) -> None:
    """And where headers are kept, none too rarely."""
    sent, most = sends(service, consumer, letters, placed), letters * MAX_ATTEMPTS
    assert sent == most if consumer is keep_all else letters < sent <= most


@pytest.mark.parametrize("placed", [True, False], ids=["with places", "without"])
def test_a_consumer_that_does_something_else_each_time_gets_no_more_than_one_send_besides(
    service: Service, placed: bool
) -> None:
    """Letters of one batch do not see which send the others take; of one letter alone there is nothing to mistake."""
    assert sends(service, fickle, 1, placed) <= MAX_ATTEMPTS
    assert sends(Service(), fickle, 7, placed) <= 7 * (MAX_ATTEMPTS + 1)
