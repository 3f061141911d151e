"""librdkafka's properties → options of Spark's Kafka source, which speaks the Java client's language.

| librdkafka | Java client |
| --- | --- |
| `security.protocol`, `sasl.mechanism`, `sasl.mechanisms` | the same |
| `sasl.username`, `sasl.password` | `sasl.jaas.config`, for PLAIN and SCRAM |
| `sasl.oauthbearer.*` of `method=oidc`: endpoint, client, secret, scope, extensions | `sasl.jaas.config` and a callback handler |
| `sasl.kerberos.principal`, `.keytab`, `.service.name`, `.min.time.before.relogin` | `sasl.jaas.config`, and the same |
| `ssl.ca.location`, `ssl.ca.pem` | a PEM truststore |
| `ssl.certificate.location`, `ssl.key.location`, `ssl.certificate.pem`, `ssl.key.pem`, `ssl.key.password` | a PEM keystore |
| `ssl.keystore.location`, `ssl.keystore.password` | a PKCS12 keystore |
| `ssl.endpoint.identification.algorithm` | the same, `none` is empty there |

Whatever else has to do with security is refused: a client that is less careful than the operator asked for must not connect.
The rest is left out: it tunes a client that is not this one. Spark redacts what holds a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from retry.errors import SettingsInvalid

# For `spark.redaction.regex` and its two siblings: what Spark must not show in plans, logs and pages; keys of object stores, too.
SECRETS_PATTERN = "(?i)secret|password|token|(access|account|private|encryption)[.]?key|keystore[.]key|jaas|sasl|credential"

SECURITY = ("security.", "ssl.", "ssl_", "sasl.", "https.", "enable.ssl.", "enable.sasl.", "oauthbearer")
_MODULES = "org.apache.kafka.common.security"
_LOGIN_MODULES = {
    "PLAIN": f"{_MODULES}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_MODULES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULES}.scram.ScramLoginModule",
}
# A broker that does not answer is said to be so in seconds; the Java client would try for minutes.
_ANSWER_MS = 15_000
_TRUE = ("true", "t", "1")
_REASONS = {
    "enable.ssl.certificate.verification": "Spark's Kafka client always checks them; name the authority in ssl.ca.location",
    "sasl.mechanism": "Spark's Kafka client knows PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, GSSAPI and OAUTHBEARER",
}
_CANNOT = "Spark's Kafka client has nothing like it, and must not connect without; leave it out for this command"

Properties = dict[str, str]


def build_options(bootstrap_servers: str, kafka: Mapping[str, str]) -> dict[str, str]:
    """Build the options with which Spark reads what is committed, as the same user as the service.

    Raises:
      SettingsInvalid: a property that has to do with security cannot be translated.

    >>> java = build_options("broker:9093", {"security.protocol": "sasl_ssl", "linger.ms": "5"})
    >>> java["kafka.bootstrap.servers"], java["kafka.security.protocol"], "kafka.linger.ms" in java
    ('broker:9093', 'SASL_SSL', False)
    """
    plain = {"bootstrap.servers": bootstrap_servers, "isolation.level": "read_committed"}
    plain |= dict.fromkeys(("request.timeout.ms", "default.api.timeout.ms"), str(_ANSWER_MS))
    return {f"kafka.{name}": value for name, value in {**plain, **_security(kafka)}.items()}


def _security(kafka: Mapping[str, str]) -> dict[str, str]:
    left = {name: value for name, value in kafka.items() if name.startswith(SECURITY) and value != ""}
    mapped = {**_trust(left), **_identity(left), **_login(left)}
    if protocol := left.pop("security.protocol", ""):
        mapped["security.protocol"] = protocol.upper()
    for name in left:
        _reject_property(name)
    return mapped


def _reject_property(name: str, reason: str = "") -> NoReturn:
    raise SettingsInvalid("RETRY_KAFKA_" + name.upper().replace(".", "_"), reason or _REASONS.get(name, _CANNOT))


def _trust(left: Properties) -> dict[str, str]:
    """Translate the properties about trusted certificates, and take them out of `left`."""
    truststore = {}
    if left.get("enable.ssl.certificate.verification", "true").lower() in _TRUE:
        left.pop("enable.ssl.certificate.verification", "")
    if algorithm := left.pop("ssl.endpoint.identification.algorithm", ""):
        truststore["ssl.endpoint.identification.algorithm"] = "" if algorithm.lower() == "none" else algorithm
    file, pem = left.pop("ssl.ca.location", ""), left.pop("ssl.ca.pem", "")
    if file and pem:
        _reject_property("ssl.ca.location", "ssl.ca.pem is set as well; Spark's Kafka client takes one of both")
    if file and Path(file).is_dir():
        _reject_property("ssl.ca.location", "it is a directory; Spark's Kafka client takes one file with all authorities")
    if file == "probe":
        return truststore  # Java knows by itself where the system keeps its authorities.
    if file:
        truststore |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(Path(file).absolute())}
    if pem:
        truststore |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": pem}
    return truststore


def _identity(left: Properties) -> dict[str, str]:
    chain, key = _pem(left, "certificate"), _pem(left, "key")
    store = left.pop("ssl.keystore.location", "")
    if store and (chain or key):
        _reject_property("ssl.keystore.location", "a certificate or a key is set as well; Spark's Kafka client takes one of both")
    if store:
        names = ("ssl.keystore.password", "ssl.key.password")
        passwords: Properties = {name: left.pop(name) for name in names if name in left}
        return {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(Path(store).absolute()), **passwords}
    if bool(chain) != bool(key):
        missing = "ssl.key.location" if chain else "ssl.certificate.location"
        _reject_property(missing, "not set; a certificate and its key belong together")
    if not chain:
        return {}
    opened = _unlock_key(key, left.pop("ssl.key.password", ""))
    return {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": opened}


def _unlock_key(key: str, password: str) -> str:
    """Write the key in the only form that the Java client takes for sure: PKCS #8. Java 17 knows no lock that openssl makes
    today."""
    try:
        private_key = load_pem_private_key(key.encode(), password.encode() if "ENCRYPTED" in key and password else None)
        return private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        setting = "ssl.key.password" if "ENCRYPTED" in key else "ssl.key.location"
        _reject_property(setting, f"the key cannot be opened: {error!s:.100}")


def _pem(left: Properties, kind: str) -> str:
    """Read the text itself: the Java client wants certificate and key in one file, which here are two."""
    file, pem = left.pop(f"ssl.{kind}.location", ""), left.pop(f"ssl.{kind}.pem", "")
    if file and pem:
        _reject_property(f"ssl.{kind}.location", f"ssl.{kind}.pem is set as well; give one of both")
    if not file:
        return pem
    try:
        return Path(file).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        _reject_property(f"ssl.{kind}.location", f"{file} cannot be read as PEM: {error}")


def _login(left: Properties) -> dict[str, str]:
    one, other = left.pop("sasl.mechanism", ""), left.pop("sasl.mechanisms", "")
    mechanism = one or other
    if other not in ("", mechanism):
        _reject_property("sasl.mechanisms", "sasl.mechanism is set as well, to another; give one of both")
    if not mechanism:
        # librdkafka's default is another than Java's; whatever logs in without saying how is refused by name.
        return {}
    if module := _LOGIN_MODULES.get(mechanism):
        login = _jaas(module, username=left.pop("sasl.username", ""), password=left.pop("sasl.password", ""))
        return {"sasl.mechanism": mechanism, "sasl.jaas.config": login}
    if mechanism == "OAUTHBEARER":
        return {"sasl.mechanism": mechanism, **_oauth(left)}
    if mechanism == "GSSAPI":
        return {"sasl.mechanism": mechanism, **_kerberos(left)}
    _reject_property("sasl.mechanism")


def _oauth(left: Properties) -> dict[str, str]:
    begin = "sasl.oauthbearer."
    if left.pop(f"{begin}method", "").lower() != "oidc":
        _reject_property(f"{begin}method", "Spark's Kafka client takes tokens from an endpoint only; set it to oidc")
    if left.pop(f"{begin}grant.type", "client_credentials") != "client_credentials":
        _reject_property(f"{begin}grant.type", "Spark's Kafka client knows client_credentials only")
    of_client = {"clientId": "client.id", "clientSecret": "client.secret", "scope": "scope"}
    credentials = {name: left.pop(f"{begin}{key}", "") for name, key in of_client.items()}
    for extension in filter(None, left.pop(f"{begin}extensions", "").split(",")):
        name, _, value = extension.partition("=")
        credentials[f"extension_{name.strip()}"] = value.strip()
    endpoint = left.pop(f"{begin}token.endpoint.url", "")
    if not endpoint:
        _reject_property(f"{begin}token.endpoint.url", "not set; it is where tokens come from")
    return {
        "sasl.oauthbearer.token.endpoint.url": endpoint,
        "sasl.login.callback.handler.class": f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": _jaas(f"{_MODULES}.oauthbearer.OAuthBearerLoginModule", **credentials),
    }


def _kerberos(left: Properties) -> dict[str, str]:
    names = ("sasl.kerberos.service.name", "sasl.kerberos.min.time.before.relogin")
    same = {name: left.pop(name) for name in names if name in left}
    keytab, principal = left.pop("sasl.kerberos.keytab", ""), left.pop("sasl.kerberos.principal", "")
    if not keytab or not principal:
        _reject_property("sasl.kerberos.keytab", "set it and sasl.kerberos.principal; Spark's Kafka client does not run kinit")
    module = "com.sun.security.auth.module.Krb5LoginModule"
    return {**same, "sasl.jaas.config": _jaas(module, useKeyTab="true", storeKey="true", keyTab=keytab, principal=principal)}


def _jaas(module: str, **parameters: str) -> str:
    return f"{module} required " + " ".join(f"{name}={_quote_text(value)}" for name, value in parameters.items() if value) + ";"


def _quote_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
