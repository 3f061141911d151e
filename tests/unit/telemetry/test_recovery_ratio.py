"""The hour that is looked at: who counts, when, against a plain list; and memory that is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from retry import clock
from retry.dead_letters.retry_headers import read_labels, read_labels_of_retries
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelope_codec import PLAIN
from retry.delay_queue.envelopes import Entry, Named
from retry.delivery.transaction_batch import decode_batch
from retry.record import Headers
from retry.telemetry import recovery_ratio
from retry.telemetry.metrics import Metrics
from retry.telemetry.recovery_ratio import MINUTE_MS, Retry, Window, count_retries, is_retry

NOW = 28_000_000
NOW_MS = NOW * MINUTE_MS + 1_234
KEY = ("a", "a/x", "1")


def retry(minutes_ago: int, attempt: str = "1") -> Retry:
    return Retry("a", "a/x", attempt, NOW - minutes_ago)


def test_a_retry_counts_once_its_settle_time_is_over() -> None:
    seen = Window()
    seen.count_sent({retry(10): 5, retry(11): 3, retry(70): 2, retry(71): 100, retry(-1): 100}, NOW_MS)
    seen.count_returned({retry(11): 1, retry(9): 4}, NOW_MS)
    assert seen.count_settled(NOW_MS) == {KEY: (5, 1)}
    assert seen.count_settled(NOW_MS + MINUTE_MS) == {KEY: (8, 1)}
    assert seen.count_settled(NOW_MS + 80 * MINUTE_MS) == {}


@given(st.lists(st.tuples(st.booleans(), st.integers(-2, 80), st.sampled_from(["1", "2"]), st.integers(1, 9)), max_size=40))
def test_what_is_settled_is_what_a_plain_list_says(told: list[tuple[bool, int, str, int]]) -> None:
    seen = Window()
    for back, ago, attempt, count in told:
        (seen.count_returned if back else seen.count_sent)({retry(ago, attempt): count}, NOW_MS)
    for attempt in ("1", "2"):
        counted = [(back, count) for back, ago, of, count in told if of == attempt and 10 < ago <= 70]
        expected = (sum(n for back, n in counted if not back), sum(n for back, n in counted if back))
        assert seen.count_settled(NOW_MS).get(("a", "a/x", attempt), (0, 0)) == expected


def test_memory_is_bounded_by_keys_and_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery_ratio, "_KEYS_MAX", 20)
    seen = Window()
    for n in range(100):
        seen.count_sent({Retry("a", f"p{n}", "1", NOW - ago): 1 for ago in range(-5, 200)}, NOW_MS)
    assert len(seen._minutes) == 20
    assert max(map(len, seen._minutes.values())) == 71
    # An hour later there is room for others.
    seen.count_sent({Retry("a", "new", "1", NOW + 100): 1}, NOW_MS + 100 * MINUTE_MS)
    assert list(seen._minutes) == [("a", "new", "1")]


def entry(headers: Headers) -> Entry:
    return Entry("orders.retry", None, None, headers, None, "a")


def own_headers(attempt: bytes, policy: bytes = b"a/x") -> Headers:
    return [
        ("retry-id", b"i"), ("retry-attempt", attempt), ("retry-source", b"s"), ("retry-due-ms", b"1"),
        ("retry-policy", policy), ("retry-first-failed-ms", b"1"),
    ]  # fmt: skip


def test_retries_are_told_from_what_is_parked_or_comes_by_a_door() -> None:
    foreign: Headers = [("retry-policy", b"forged"), ("retry-attempt", b"77")]
    named = Named("t", None, None, own_headers(b"1", b"a header of somebody"), None, "a")
    parked: Headers = [*own_headers(b"2"), ("retry-parked-reason", b"rule")]
    lane = entry_keys.build_named_lane("a", "t", "t")
    keys = {Entry: entry_keys.build_key(1, b"t", 1), Named: entry_keys.build_named_key(1, bytes(16), 1, b"t", 1, lane)}
    sent = [
        entry(foreign + own_headers(b"2")), entry(own_headers(b"2")), entry(own_headers(b"17")), entry(parked), entry([]),
        entry([*foreign, *own_headers(b"2")[:2], own_headers(b"2")[-1]]), named,
    ]  # fmt: skip
    due_ms = [NOW_MS, NOW_MS, NOW_MS - MINUTE_MS, *[NOW_MS] * 4]
    batch = decode_batch([], [(keys[type(e)], envelopes.encode(e)) for e in sent], PLAIN)
    assert batch.entries == sent
    assert [each is not None for each in batch.labels] == [is_retry(e) for e in sent]
    counted = count_retries(batch.entries, batch.labels, due_ms)
    assert counted == {Retry("a", "a/x", "2", NOW): 2, Retry("a", "a/x", "10+", NOW - 1): 1}


OURS = [name for name, _ in own_headers(b"1")]
HEADERS = st.lists(st.tuples(st.sampled_from([*OURS, "retry-parked-reason", "x"]), st.sampled_from([None, b"1"])), max_size=8)


@given(st.lists(st.one_of(HEADERS, HEADERS.map(lambda before: before + own_headers(b"1")))))
def test_labels_of_many_are_those_of_each(all_headers: list[Headers]) -> None:
    assert read_labels_of_retries(all_headers) == [read_labels(headers) for headers in all_headers]


def test_the_page_has_counters_at_once_and_the_ratio_when_it_is_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Metrics()
    told.tell_retried({retry(11): 8, retry(0): 4}, NOW_MS)
    told.tell_back({retry(11): 2, retry(11, "2"): 1}, NOW_MS)
    monkeypatch.setattr(clock, "wall_ms", lambda: NOW_MS)
    samples = {
        (s.name, s.labels["attempt"]): s.value
        for family in text_string_to_metric_families(told.render_metrics().decode())
        for s in family.samples
        if "attempt" in s.labels and not s.name.endswith("_created")
    }
    assert samples == {
        ("retry_retries_sent_total", "1"): 12,
        ("retry_letters_failed_again_total", "1"): 2, ("retry_letters_failed_again_total", "2"): 1,
        ("retry_recovery_window_sent", "1"): 8, ("retry_recovery_window_failed_again", "1"): 2,
        ("retry_recovery_ratio", "1"): 0.75,
        # Sent by another worker: no ratio.
        ("retry_recovery_window_sent", "2"): 0, ("retry_recovery_window_failed_again", "2"): 1,
    }  # fmt: skip
