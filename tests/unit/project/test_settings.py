"""Settings are read whole, or the process stops and names the variable."""

from __future__ import annotations

from pathlib import Path

import pytest

from retry.errors import SettingsInvalid
from retry.settings import Settings, list_unknown_variables, read_settings

SECRET = "hunter2-canary"


def test_an_empty_environment_gives_the_defaults_of_the_readme() -> None:
    found = read_settings({})
    assert found == Settings()
    assert (found.bootstrap_servers, found.app_id, found.shards) == ("127.0.0.1:9092", "retry", 8)
    assert (found.http_addr, found.sweep_interval_ms, found.policies) == ("127.0.0.1:8080", 25, None)


def test_every_field_is_a_variable() -> None:
    values = {
        "bootstrap_servers": "a:1,b:2", "app_id": "my.app_1-x", "policies": "p.yaml", "data_dir": "/data",
        "shards": "3", "instance": "pod-0",
        "http_addr": "0.0.0.0:0", "http_hosts": "retry, *.example.com",
            "sweep_interval_ms": "60000", "batch_records": "1", "batch_bytes": "1024",
        "table_cache_bytes": str(8 << 20), "lineages": "1000", "stalled_s": "5",
        "standby": "1", "positions_every_s": "0", "traces": "1", "log_format": "json", "log_level": "debug",
        "calls": "1", "calls_per_host": "2", "call_timeout_ms": "100", "webhook_allow": "10.0.0.0/8",
        "encryption_keys": "keys", "webhook_secrets": "secrets", "webhook_certificates": "certs",
             "api_addr": "127.0.0.1:1", "api_tokens": "tokens",
            "api_requests_per_s": "0", "api_timers_per_team": "0", "api_metrics_open": "1", "api_audit": "2",
        "api_tls_cert": "api.crt", "api_tls_key": "api.key", "scheduler_tls_cert": "rest.crt", "scheduler_tls_key": "rest.key",
        "console_addr": "127.0.0.1:2", "console_url": "https://retry.example.com", "console_tokens": "people",
            "console_tls_cert": "c.pem", "console_tls_key": "k.pem", "console_tls_proxy": "1",
            "console_oidc_issuer": "https://id.example.com", "console_oidc_client_id": "retry",
            "console_oidc_client_secret": "secret", "console_oidc_claim": "roles", "console_oidc_roles": "roles",
            "console_session_s": "60", "console_schedulers": "eu=http://10.0.0.5:8000", "console_notifications": "rules",
            "console_advice": "advice.json", "console_proxy_from": "10.0.0.1", "console_proxy_secret": "secret",
            "console_proxy_roles": "roles", "console_session_key": "key", "console_decoders": "payments.*=acme-cbor",
    }  # fmt: skip
    others = {"kafka", "registry", "kafka_consumer", "kafka_producer", "session_timeout_ms", "sweep_records"}
    assert {*values} | others == set(Settings.__struct_fields__)
    found = read_settings({f"RETRY_{name.upper()}": text for name, text in values.items()})
    assert {name: str(getattr(found, name)) for name in values} == values
    assert isinstance(found.policies, Path)
    assert isinstance(found.data_dir, Path)


def test_properties_of_the_registry_have_their_own_prefix() -> None:
    found = read_settings({"RETRY_REGISTRY_URL": "http://u:pa55@r", "RETRY_REGISTRY_SSL_CA_LOCATION": "/ca.pem"})
    assert found.registry == {"url": "http://u:pa55@r", "ssl.ca.location": "/ca.pem"}
    assert "pa55" not in repr(found)
    with pytest.raises(SettingsInvalid, match="RETRY_REGISTRY_URL: not set"):
        read_settings({"RETRY_REGISTRY_SSL_CA_LOCATION": "/ca.pem"})


def test_empty_values_count_as_not_given() -> None:
    assert read_settings({"RETRY_SHARDS": "", "RETRY_POLICIES": "", "RETRY_APP_ID": ""}) == Settings()


def test_variables_of_others_are_not_looked_at() -> None:
    assert read_settings({"SHARDS": "x", "retry_shards": "x", "XRETRY_SHARDS": "x", "PATH": "/bin"}) == Settings()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RETRY_SHARDS", "0"), ("RETRY_SHARDS", "-1"), ("RETRY_SHARDS", "1001"), ("RETRY_SHARDS", "eight"),
        ("RETRY_SHARDS", "8.0"), ("RETRY_SHARDS", "1e3"),
        ("RETRY_SWEEP_INTERVAL_MS", "0"), ("RETRY_SWEEP_INTERVAL_MS", "60001"), ("RETRY_SWEEP_INTERVAL_MS", "50ms"),
        ("RETRY_BATCH_RECORDS", "0"), ("RETRY_BATCH_RECORDS", "100001"),
        ("RETRY_BATCH_BYTES", "1023"), ("RETRY_BATCH_BYTES", str((1 << 30) + 1)), ("RETRY_BATCH_BYTES", "16M"),
        ("RETRY_TABLE_CACHE_BYTES", str((8 << 20) - 1)), ("RETRY_TABLE_CACHE_BYTES", str((1 << 40) + 1)),
        ("RETRY_APP_ID", "a b"), ("RETRY_APP_ID", "a/b"), ("RETRY_APP_ID", "a" * 201), ("RETRY_APP_ID", "zürich"),
        ("RETRY_APP_ID", "a\n"),
        ("RETRY_LOG_FORMAT", "xml"), ("RETRY_LOG_LEVEL", "trace"), ("RETRY_LOG_LEVEL", "INFO"),
        ("RETRY_HTTP_ADDR", "8080"), ("RETRY_HTTP_ADDR", ":8080"), ("RETRY_HTTP_ADDR", "localhost:"),
        ("RETRY_HTTP_ADDR", "localhost:http"), ("RETRY_HTTP_ADDR", "localhost:65536"),
        ("RETRY_HTTP_ADDR", "localhost:-1"), ("RETRY_HTTP_ADDR", "localhost:٣"),
    ],
)  # fmt: skip
def test_a_bad_value_names_its_variable(variable: str, value: str) -> None:
    with pytest.raises(SettingsInvalid) as refused:
        read_settings({variable: value})
    assert refused.value.name == variable
    assert str(refused.value).startswith(f"{variable}: ")


@pytest.mark.parametrize(
    ("variable", "low", "high"),
    [
        ("SHARDS", 1, 1_000), ("SWEEP_INTERVAL_MS", 1, 60_000), ("BATCH_RECORDS", 1, 100_000),
        ("BATCH_BYTES", 1 << 10, 1 << 30), ("TABLE_CACHE_BYTES", 8 << 20, 1 << 40),
    ],
)  # fmt: skip
def test_values_at_the_limits_are_taken(variable: str, low: int, high: int) -> None:
    for value in (low, high):
        assert getattr(read_settings({f"RETRY_{variable}": str(value)}), variable.lower()) == value


def test_a_variable_that_is_none_of_ours_is_passed_over_and_told_with_the_one_that_may_be_meant() -> None:
    foreign = {"RETRY_SHARD": "8x", "RETRY_PORT_8080_TCP_ADDR": "::1", "RETRY_KAFKA": "x", "RETRY_": "x", "RETRY_shards": "8x"}
    known = {"RETRY_SHARDS": "3", "RETRY_KAFKA_X_Y": "1", "RETRY_REGISTRY_URL": "http://r", "RETRY_CONFIG": "f"}
    assert read_settings(foreign | known) == read_settings(known)
    assert list_unknown_variables(foreign | known) == [
        "RETRY_ is passed over: no such setting",
        "RETRY_KAFKA is passed over: no such setting",
        "RETRY_PORT_8080_TCP_ADDR is passed over: no such setting",
        "RETRY_SHARD is passed over: no such setting, did you mean RETRY_SHARDS?",
        "RETRY_shards is passed over: no such setting",
    ]


@pytest.mark.parametrize(
    ("address", "expected"),
    [("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:8080", ("::1", 8080)), ("localhost:65535", ("localhost", 65_535))],
)
def test_http_addresses(address: str, expected: tuple[str, int]) -> None:
    assert read_settings({"RETRY_HTTP_ADDR": address}).http_host_port() == expected


def test_kafka_properties_lose_the_prefix_and_get_dots() -> None:
    found = read_settings({
        "RETRY_KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "RETRY_KAFKA_SASL_PASSWORD": SECRET,
        "RETRY_KAFKA_SSL_CA_LOCATION": "/ca", "RETRY_KAFKA_CLIENT_RACK": "",
    })  # fmt: skip
    assert found.kafka == {
        "security.protocol": "SASL_SSL", "sasl.password": SECRET, "ssl.ca.location": "/ca", "client.rack": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password", "ssl.key.password", "ssl.keystore.password", "ssl.key.pem", "sasl.jaas.config",
        "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config",
        "sasl.oauthbearer.assertion.private.key.pem", "sasl.oauthbearer.assertion.private.key.passphrase",
    ],
)  # fmt: skip
def test_secrets_are_not_shown(name: str) -> None:
    found = read_settings({"RETRY_KAFKA_" + name.upper().replace(".", "_"): SECRET})
    assert found.kafka == {name: SECRET}
    for shown in (repr(found), str(found), f"{found}"):
        assert SECRET not in shown
        assert f"'{name}': '***'" in shown


def test_what_is_no_secret_is_shown() -> None:
    shown = repr(read_settings({"RETRY_KAFKA_SASL_USERNAME": "ann", "RETRY_SHARDS": "3", "RETRY_DATA_DIR": "/d"}))
    assert all(part in shown for part in ("'sasl.username': 'ann'", "shards=3", "data_dir=/d"))


def test_settings_do_not_change() -> None:
    with pytest.raises(AttributeError):
        Settings().shards = 3  # type: ignore[misc]


def test_the_newer_group_protocol_is_refused_by_the_name_that_was_set() -> None:
    with pytest.raises(SettingsInvalid, match=r"^RETRY_KAFKA_GROUP_PROTOCOL: 'consumer' is not supported.*unset it"):
        Settings(kafka={"group.protocol": "consumer"})
    assert Settings(kafka={"group.protocol": "classic"}).kafka
