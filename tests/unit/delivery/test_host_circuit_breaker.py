"""Breakers of hosts: failures in a row, a rest, one probe."""

from __future__ import annotations

from retry.delivery.circuit_breakers import FAILURES, OPEN_MS, OPEN_MS_MAX, HostCircuitBreakers

HOST, OTHER = "https://a:443", "https://b:443"


def open_breaker(now_ms: int = 0) -> HostCircuitBreakers:
    hosts = HostCircuitBreakers()
    for _ in range(FAILURES):
        hosts.note_failure(HOST, now_ms)
    return hosts


def test_few_failures_open_nothing_and_an_answer_takes_them_back() -> None:
    hosts = HostCircuitBreakers()
    for _ in range(3):
        for _ in range(FAILURES - 1):
            hosts.note_failure(HOST, 0)
        assert hosts.explain_block(HOST, 0) is None
        hosts.note_answer(HOST)


def test_failures_in_a_row_close_a_host_for_a_while_and_no_other() -> None:
    hosts = open_breaker()
    assert "open" in (hosts.explain_block(HOST, OPEN_MS - 1) or "")
    assert hosts.explain_block(OTHER, 0) is None
    assert hosts.describe_hosts(0) == {HOST: "open"}


def test_then_one_probe_goes_and_its_answer_lets_everything_go() -> None:
    hosts = open_breaker()
    assert hosts.explain_block(HOST, OPEN_MS) is None
    assert hosts.is_half_open(HOST)
    hosts.note_call_begun(HOST)
    assert "probe" in (hosts.explain_block(HOST, OPEN_MS) or "")
    assert hosts.describe_hosts(OPEN_MS) == {HOST: "half-open"}
    hosts.note_answer(HOST)
    assert hosts.explain_block(HOST, OPEN_MS) is None
    assert not hosts.is_half_open(HOST)


def test_a_probe_that_fails_opens_it_twice_as_long_up_to_a_bound() -> None:
    hosts, now_ms, rest_ms = open_breaker(), OPEN_MS, OPEN_MS
    for _ in range(12):
        assert hosts.explain_block(HOST, now_ms) is None
        hosts.note_call_begun(HOST)
        hosts.note_failure(HOST, now_ms)
        rest_ms = min(rest_ms * 2, OPEN_MS_MAX)
        assert hosts.explain_block(HOST, now_ms + rest_ms - 1) is not None
        now_ms += rest_ms
    assert rest_ms == OPEN_MS_MAX


def test_calls_that_were_under_way_when_it_opened_do_not_make_it_last_longer() -> None:
    hosts = open_breaker()
    for _ in range(50):
        hosts.note_failure(HOST, 10)
    assert hosts.explain_block(HOST, OPEN_MS) is None


def test_a_host_that_asks_to_wait_is_left_alone_for_so_long() -> None:
    hosts = HostCircuitBreakers()
    hosts.note_failure(HOST, 0, 30_000)
    assert hosts.explain_block(HOST, 29_999) is not None
    assert hosts.explain_block(HOST, 30_000) is None
