"""The Java client gets the operator's identity, and nothing that it would not understand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from retry.errors import SettingsInvalid

connection = pytest.importorskip("retry.analytics.spark_kafka_options")


def test_without_properties_only_the_address_the_isolation_and_the_patience_are_set() -> None:
    found = connection.build_options("broker:9092", {})
    assert found["kafka.isolation.level"] == "read_committed"
    assert set(found) == {
        "kafka.bootstrap.servers",
        "kafka.isolation.level",
        "kafka.request.timeout.ms",
        "kafka.default.api.timeout.ms",
    }


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "plain.PlainLoginModule"),
        ("SCRAM-SHA-256", "scram.ScramLoginModule"),
        ("SCRAM-SHA-512", "scram.ScramLoginModule"),
    ],
)
@pytest.mark.parametrize("spelling", ["sasl.mechanism", "sasl.mechanisms"])
def test_name_and_password_become_a_login(spelling: str, mechanism: str, module: str) -> None:
    found = connection.build_options("b:1", {spelling: mechanism, "sasl.username": "me", "sasl.password": 'a"b\\c;'})
    login = f'org.apache.kafka.common.security.{module} required username="me" password="a\\"b\\\\c;";'
    assert found["kafka.sasl.jaas.config"] == login
    assert found["kafka.sasl.mechanism"] == mechanism


def test_the_authority_becomes_a_pem_truststore() -> None:
    found = connection.build_options("b:1", {"security.protocol": "ssl", "ssl.ca.location": "/etc/ca.pem"})
    assert found["kafka.security.protocol"] == "SSL"
    assert found["kafka.ssl.truststore.type"] == "PEM"
    assert found["kafka.ssl.truststore.location"] == "/etc/ca.pem"


def test_what_tunes_librdkafka_is_left_out() -> None:
    assert connection.build_options("b:1", {"linger.ms": "5", "debug": "all"}) == connection.build_options("b:1", {})


# Of librdkafka's list, each with a value by which it asks for something; what else has such a name is as good as these.
SECURITY = {
    "security.protocol": "ssl", "sasl.mechanism": "PLAIN", "sasl.mechanisms": "SCRAM-SHA-256", "sasl.username": "me",
    "sasl.password": "pw", "sasl.kerberos.service.name": "kafka", "sasl.kerberos.principal": "me@REALM",
    "sasl.kerberos.kinit.cmd": "kinit", "sasl.kerberos.keytab": "/etc/me.keytab",
    "sasl.kerberos.min.time.before.relogin": "1", "sasl.oauthbearer.config": "principal=me",
    "enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "pw", "sasl.oauthbearer.scope": "all", "sasl.oauthbearer.extensions": "a=b",
    "sasl.oauthbearer.token.endpoint.url": "https://tokens/", "sasl.oauthbearer.grant.type": "jwt",
    "sasl.oauthbearer.assertion.file": "/a", "sasl.oauthbearer.assertion.private.key.pem": "key",
    "sasl.oauthbearer.sub.claim.name": "s", "https.ca.location": "/etc/ca.pem", "https.ca.pem": "pem",
    "ssl.cipher.suites": "AES", "ssl.curves.list": "P-256", "ssl.sigalgs.list": "ECDSA", "ssl.key.location": "/no/key",
    "ssl.key.password": "pw", "ssl.key.pem": "key", "ssl_key": "key", "ssl.certificate.location": "/no/certificate",
    "ssl.certificate.pem": "pem", "ssl_certificate": "pem", "ssl_ca": "pem", "ssl.ca.location": "/etc/ca.pem",
    "ssl.ca.pem": "pem", "ssl.ca.certificate.stores": "Root", "ssl.crl.location": "/etc/crl",
    "ssl.keystore.location": "/etc/store.p12", "ssl.keystore.password": "pw", "ssl.providers": "fips",
    "ssl.engine.location": "/e", "ssl.engine.id": "e", "enable.ssl.certificate.verification": "false",
    "ssl.endpoint.identification.algorithm": "none",
}  # fmt: skip
_OIDC = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "https://tokens/",
}
_OWN = ec.generate_private_key(ec.SECP256R1())
_KEY = _OWN.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
_LOCKED = _OWN.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pw")).decode()
_OLDER = _OWN.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
CONTEXTS: list[dict[str, str]] = [
    {}, {"sasl.mechanism": "PLAIN"}, {"sasl.mechanism": "PLAIN", "sasl.username": "x", "sasl.password": "y"}, _OIDC,
    {**_OIDC, "sasl.oauthbearer.client.id": "x", "sasl.oauthbearer.client.secret": "y"},
    {"sasl.mechanism": "GSSAPI", "sasl.kerberos.keytab": "/k", "sasl.kerberos.principal": "x"}, {"ssl.certificate.pem": "x"},
    {"ssl.key.pem": _KEY}, {"ssl.certificate.pem": "x", "ssl.key.pem": _LOCKED}, {"ssl.keystore.location": "/etc/x.p12"},
]  # fmt: skip


def _options(kafka: dict[str, str]) -> dict[str, str] | str:
    """Options, or how they were refused."""
    try:
        return dict(connection.build_options("b:1", kafka))
    except SettingsInvalid as refused:
        return str(refused)


def is_dropped(name: str, value: str, context: dict[str, str]) -> bool:
    """Whether it makes no difference, and was not refused."""
    without, found = _options({n: v for n, v in context.items() if n != name}), _options({**context, name: value})
    if isinstance(found, str):
        assert found.startswith("RETRY_KAFKA_") and "\n" not in found and value + ";" not in found
        return False
    return found == without


def test_what_librdkafka_knows_of_security_is_translated_or_refused_and_never_dropped() -> None:
    assert [name for name, value in SECURITY.items() for context in CONTEXTS if is_dropped(name, value, context)] == []


_OTHERS = st.builds(str.__add__, st.sampled_from(connection.SECURITY), st.from_regex(r"[a-z.]{1,20}", fullmatch=True))


@given(_OTHERS.filter(lambda name: name not in SECURITY), st.sampled_from(CONTEXTS))
def test_what_a_later_librdkafka_will_know_of_security_is_refused(name: str, context: dict[str, str]) -> None:
    assert isinstance(_options({**context, name: "something"}), str)


def test_a_client_certificate_in_files_becomes_a_pem_keystore(tmp_path: Path) -> None:
    certificate, key = tmp_path / "me.crt", tmp_path / "me.key"
    certificate.write_text("-----BEGIN CERTIFICATE-----")
    key.write_text(_LOCKED)
    given_ = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key), "ssl.key.password": "pw"}
    found = connection.build_options("b:1", {"security.protocol": "ssl", **given_})
    assert found["kafka.ssl.keystore.type"] == "PEM"
    assert found["kafka.ssl.keystore.certificate.chain"] == "-----BEGIN CERTIFICATE-----"
    # Java 17 cannot open it, so it is opened here; what is not locked, or of an older form, becomes the same.
    assert found["kafka.ssl.keystore.key"] == _KEY and "kafka.ssl.key.password" not in found
    for form in (_KEY, _OLDER):
        key.write_text(form)
        assert connection.build_options("b:1", given_)["kafka.ssl.keystore.key"] == _KEY


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"ssl.certificate.pem": "x"}, "RETRY_KAFKA_SSL_KEY_LOCATION: not set; a certificate and its key belong together"),
        ({"ssl.certificate.pem": "x", "ssl.key.pem": "no key"}, "RETRY_KAFKA_SSL_KEY_LOCATION: the key cannot be opened"),
        ({"ssl.certificate.pem": "x", "ssl.key.pem": _LOCKED}, "RETRY_KAFKA_SSL_KEY_PASSWORD: the key cannot be opened"),
        ({"ssl.key.location": "/no/such", "ssl.certificate.pem": "x"}, "RETRY_KAFKA_SSL_KEY_LOCATION: /no/such cannot be read"),
        ({"ssl.crl.location": "/etc/crl"}, "RETRY_KAFKA_SSL_CRL_LOCATION: Spark's Kafka client has nothing like it"),
        ({"enable.ssl.certificate.verification": "false"}, "always checks them"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.config": "x"}, "set it to oidc"),
        ({"sasl.username": "me", "sasl.password": "pw"}, "RETRY_KAFKA_SASL_USERNAME"),
    ],
)
def test_what_cannot_be_translated_is_refused_by_its_variable(given_: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsInvalid) as refused:
        connection.build_options("b:1", given_)
    assert said in str(refused.value) and "pw" not in str(refused.value)


def test_client_credentials_become_a_login_with_a_token() -> None:
    extra = {
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": 's"',
        "sasl.oauthbearer.extensions": "cluster=a,b=c",
    }
    found = connection.build_options("b:1", {**_OIDC, **extra, "sasl.oauthbearer.scope": "kafka"})
    assert found["kafka.sasl.oauthbearer.token.endpoint.url"] == "https://tokens/"
    assert found["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'clientId="me" clientSecret="s\\"" scope="kafka" extension_cluster="a" extension_b="c";'
    )


def test_every_option_that_holds_a_secret_is_redacted_by_spark() -> None:
    assert re.search(connection.SECRETS_PATTERN, "kafka.sasl.jaas.config")
    for name in ("truststore.password", "keystore.password", "keystore.key", "key.password"):
        assert re.search(connection.SECRETS_PATTERN, f"kafka.ssl.{name}")
    stores = (
        "s3a.secret.key", "s3a.access.key", "s3a.session.token", "s3a.encryption.key", "azure.sas.fixed.token",
        "azure.account.key.lake.dfs.core.windows.net", "gs.auth.service.account.private.key",
    )  # fmt: skip
    for name in stores:
        assert re.search(connection.SECRETS_PATTERN, f"spark.hadoop.fs.{name}")
    assert not re.search(connection.SECRETS_PATTERN, "spark.hadoop.fs.s3a.endpoint")
