"""What clients say while brokers are away."""

from __future__ import annotations

import logging

import pytest

from retry import repeated_lines
from retry.kafka import client_config
from retry.repeated_lines import RepeatedLineFilter
from retry.settings import read_settings


def test_lost_connections_are_told_now_and_then_and_everything_else_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sparing, clock = RepeatedLineFilter(client_config._find_kind), [100.0]
    monkeypatch.setattr(repeated_lines, "monotonic_s", lambda: clock[0])

    def passes_filter(text: str, client: str = "consumer-1") -> bool:
        return sparing.filter(logging.LogRecord("clients", logging.ERROR, "", 0, text, (client,), None))

    told = []
    for clock[0] in (100.0, 105.0, 159.9, 160.1, 165.0):
        told.append(passes_filter("FAIL [%s] [thrd:one:9092/1]: refused", client=f"producer-{clock[0]}"))
        assert passes_filter("FATAL [%s] [thrd:main]: fenced")
    assert told == [True, False, False, True, False]
    assert passes_filter("FAIL [%s] [thrd:two:9092/2]: refused")
    assert passes_filter("TXNERR [%s] [thrd:one:9092/1]: refused")


def test_who_follows_the_changelog_begins_at_its_beginning_whatever_the_operator_prefers() -> None:
    settings = read_settings({"RETRY_KAFKA_AUTO_OFFSET_RESET": "latest"})
    assert client_config.build_reader_config(settings)["auto.offset.reset"] == "earliest"
    assert client_config.build_consumer_config(settings, "group", "a")["auto.offset.reset"] == "latest"


def test_what_a_reader_is_better_off_with_gives_way_to_what_the_operator_says() -> None:
    preferred = {"fetch.max.bytes": 4 << 20, "auto.offset.reset": "latest"}
    config = client_config.build_reader_config(read_settings({}), preferred=preferred)
    assert (config["fetch.max.bytes"], config["auto.offset.reset"]) == (4 << 20, "earliest")
    told = read_settings({"RETRY_KAFKA_FETCH_MAX_BYTES": "9000000"})
    assert str(client_config.build_reader_config(told, preferred=preferred)["fetch.max.bytes"]) == "9000000"


def test_records_that_share_a_batch_fit_into_what_their_topic_takes() -> None:
    settings = read_settings({})
    assert client_config.build_records_config(settings, 2_000)["batch.size"] == 2_000
    assert (
        client_config.build_records_config(settings, 16 << 20)["batch.size"]
        == client_config.build_records_config(settings)["batch.size"]
    )


def test_clients_without_brokers_do_not_begin_anew_all_the_time() -> None:
    """Each time costs a thread: with a wait of 20 ms, a worker whose brokers are away makes 500 of them a second."""
    settings = read_settings({})
    for config in (
        client_config.build_consumer_config(settings, "group", "a"),
        client_config.build_reader_config(settings),
        client_config.build_producer_config(settings, "id"),
        client_config.build_records_config(settings),
        client_config.build_asking_config(settings),
    ):
        assert 100 <= config["reconnect.backoff.ms"] < config["reconnect.backoff.max.ms"]
