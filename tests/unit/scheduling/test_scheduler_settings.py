"""The variables and the file of the Go scheduler: names, defaults, and what wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from retry.errors import SettingsInvalid
from retry.kafka import client_config
from retry.scheduling.messages.settings import HostPort, SchedulerSettings, build_scheduler_logging, read_scheduler_settings

FILE = """
kafka.common.configuration:
    security.protocol: PLAINTEXT
    bootstrap.servers: of-the-file:9092
    client.id: mine
    socket.keepalive.enable: true
kafka.producer.configuration:
    partitioner: murmur2_random
    enable.idempotence: false
    transactional.id: stolen
kafka.consumer.configuration:
    fetch.wait.max.ms: 77
    group.id: stolen
    go.events.channel.size: 5
"""


def read_given(**given: str) -> SchedulerSettings:
    return read_scheduler_settings(given)


def test_1_14_an_empty_environment_gives_the_defaults_of_the_seed() -> None:
    settings = read_given()
    assert settings.worker.bootstrap_servers == "localhost:9092"
    assert settings.worker.app_id == "scheduler-cg"
    assert (settings.topics, settings.history, settings.since_delta) == (("schedules",), "history", 0)
    assert settings.worker.session_timeout_ms == 6_000
    assert (settings.server.port, settings.metrics.port, settings.graylog) == (8000, 8001, None)
    assert settings.allowed == ()
    assert settings.level == "INFO"


def test_1_14_without_the_variable_there_is_no_limit_and_with_it_the_one_that_it_says() -> None:
    assert read_given().grace_s is None
    assert read_given(SCHEDULE_GRACE_INTERVAL="").grace_s is None
    assert read_given(SCHEDULE_GRACE_INTERVAL="0").grace_s == 0
    assert read_given(SCHEDULE_GRACE_INTERVAL="3").grace_s == 3


def test_1_14_every_variable_counts() -> None:
    settings = read_given(
        BOOTSTRAP_SERVERS="a:1,b:2", GROUP_ID="cg", HISTORY_TOPIC="h", METRICS_ADDR="127.0.0.1:1", SERVER_ADDR="127.0.0.1:2",
        SESSION_TIMEOUT="45000", SCHEDULES_TOPICS="s1, s2,^team-.*$", SINCE_DELTA="-2", GRAYLOG_SERVER="graylog",
        LOG_LEVEL="error", KAFKA_MESSAGE_BODY_DECODER="http://decoder:8080/decode",
    )  # fmt: skip
    assert (settings.worker.bootstrap_servers, settings.worker.app_id, settings.history) == ("a:1,b:2", "cg", "h")
    assert (settings.topics, settings.since_delta) == (("s1", "s2", "^team-.*$"), -2)
    assert (settings.server, settings.metrics) == (HostPort("127.0.0.1", 2), HostPort("127.0.0.1", 1))
    assert settings.worker.http_addr == "127.0.0.1:1"
    assert client_config.build_consumer_config(settings.worker, "g", "i")["session.timeout.ms"] == 45_000
    assert settings.graylog == HostPort("graylog", 12201)
    assert settings.level == "ERROR"
    assert settings.decoder == "http://decoder:8080/decode"


@pytest.mark.parametrize(("given", "host"), [
    (None, "127.0.0.1"), (":8000", "0.0.0.0"), ("10.0.0.1:8000", "10.0.0.1"), ("[::1]:8000", "::1"),
])  # fmt: skip
def test_1_17_loopback_where_nothing_is_said_and_every_interface_where_the_host_is_left_out(given: str | None, host: str) -> None:
    settings = read_given(**({} if given is None else {"SERVER_ADDR": given, "METRICS_ADDR": given}))
    assert (settings.server.host, settings.metrics.host) == (host, host)
    assert settings.worker.http_host_port()[0] == host


@pytest.mark.parametrize(("name", "value"), [
    ("SINCE_DELTA", "1"), ("SINCE_DELTA", "yesterday"), ("SCHEDULE_GRACE_INTERVAL", "-1"), ("SESSION_TIMEOUT", "6s"),
    ("SCHEDULES_TOPICS", "a/b"), ("SCHEDULES_TOPICS", "^("), ("SCHEDULES_TOPICS", ","),
    ("SCHEDULES_TOPICS", "__consumer_offsets"), ("HISTORY_TOPIC", "__history"),
    ("HISTORY_TOPIC", "a b"),
    ("SERVER_ADDR", "nowhere:port"), ("METRICS_ADDR", ":99999"), ("CONFIGURATION_FILE", "/nowhere/config.yaml"),
    ("GROUP_ID", "my group"), ("SCHEDULER_ALLOWED_TARGETS", "^["),
    ("SCHEDULER_ALLOWED_TARGETS", "orders,__consumer_offsets"),
])  # fmt: skip
def test_what_cannot_be_used_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(SettingsInvalid) as refused:
        read_given(**{name: value})
    assert refused.value.name == name


def test_1_16_the_file_configures_both_clients_and_the_environment_wins(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(FILE)
    worker = read_given(CONFIGURATION_FILE=str(tmp_path / "config.yaml"), BOOTSTRAP_SERVERS="of-the-environment:9092").worker
    assert worker.bootstrap_servers == "of-the-environment:9092"
    producer, consumer = client_config.build_producer_config(worker, "tx"), client_config.build_consumer_config(worker, "g", "i")
    for config in (producer, consumer):
        assert config["bootstrap.servers"] == "of-the-environment:9092"
        assert (config["client.id"], config["socket.keepalive.enable"]) == ("mine", "true")
    assert (producer["partitioner"], consumer["fetch.wait.max.ms"]) == ("murmur2_random", "77")
    assert "partitioner" not in consumer
    assert "fetch.wait.max.ms" not in producer
    # What exactly-once rests on is not the file's to say.
    assert (producer["enable.idempotence"], producer["transactional.id"], consumer["group.id"]) == (True, "tx", "g")
    assert not any(name.startswith("go.") for name in consumer)


def test_1_16_keys_go_to_the_partitions_where_the_go_client_puts_them_unless_the_file_says_otherwise() -> None:
    assert client_config.build_producer_config(read_given().worker, "tx")["partitioner"] == "consistent_random"


@pytest.mark.parametrize("text", [
    "- a list", "kafka.commons.configuration: {a: b}", "kafka.common.configuration: [a]", "{", "a: {b: [c]}",
    "kafka.common.configuration: {a: {b: c}}",
])  # fmt: skip
def test_1_16_a_file_with_something_else_in_it_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(SettingsInvalid, match=r"CONFIGURATION_FILE.*config\.yaml"):
        read_given(CONFIGURATION_FILE=str(tmp_path / "config.yaml"))


@pytest.mark.parametrize("section", ["kafka.common.configuration", "kafka.consumer.configuration"])
def test_the_newer_group_protocol_is_refused_by_the_place_in_the_file_that_says_it(tmp_path: Path, section: str) -> None:
    (tmp_path / "config.yaml").write_text(f"{section}: {{group.protocol: Consumer}}")
    with pytest.raises(SettingsInvalid) as refused:
        read_given(CONFIGURATION_FILE=str(tmp_path / "config.yaml"))
    said = str(refused.value)
    assert said.startswith(f"CONFIGURATION_FILE: {tmp_path}/config.yaml: {section}: group.protocol: 'Consumer' is not supported")
    assert "RETRY_KAFKA" not in said
    (tmp_path / "config.yaml").write_text(f"{section}: {{group.protocol: classic}}")
    worker = read_given(CONFIGURATION_FILE=str(tmp_path / "config.yaml")).worker
    assert client_config.build_consumer_config(worker, "g", "i")["group.protocol"] == "classic"
    # A variable that was set is named, as before.
    with pytest.raises(SettingsInvalid, match=r"^RETRY_KAFKA_GROUP_PROTOCOL: "):
        read_given(CONFIGURATION_FILE=str(tmp_path / "config.yaml"), RETRY_KAFKA_GROUP_PROTOCOL="consumer")


def test_what_it_has_no_variable_for_is_set_as_for_a_worker_and_two_of_one_machine_have_their_own_directories() -> None:
    worker = read_given(RETRY_SHARDS="3", RETRY_STANDBY="1", RETRY_KAFKA_CLIENT_ID="x").worker
    assert (worker.shards, worker.standby, worker.kafka) == (3, 1, {"client.id": "x"})
    assert read_given(RETRY_DATA_DIR="/data").worker.data_dir == Path("/data")
    assert read_given(SERVER_ADDR=":8000").worker.data_dir != read_given(SERVER_ADDR=":8010").worker.data_dir


def test_what_is_taken_in_together_is_not_bounded_by_what_is_sent_together() -> None:
    worker = read_given().worker
    assert (worker.batch_records, worker.sweep_records, worker.sweep_interval_ms) == (5_000, 4_000, 100)
    worker = read_given(RETRY_BATCH_RECORDS="700", RETRY_SWEEP_INTERVAL_MS="25").worker
    assert (worker.batch_records, worker.sweep_records, worker.sweep_interval_ms) == (700, 0, 25)


def test_1_18_logs_go_to_graylog_where_it_is_named() -> None:
    assert "graylog" not in build_scheduler_logging(read_given())["handlers"]
    handler = build_scheduler_logging(read_given(GRAYLOG_SERVER="logs:12202", LOG_LEVEL="trace"))
    assert handler["handlers"]["graylog"]["port"] == 12202
    assert handler["root"] == {"level": "DEBUG", "handlers": ["stderr", "graylog"]}
