"""librdkafka's properties → options of Spark's Kafka source, which speaks the Java client's language.

| librdkafka | Java client |
| --- | --- |
| `security.protocol` | the same |
| `sasl.mechanism`, `sasl.mechanisms` | `sasl.mechanism` |
| `sasl.username`, `sasl.password` | `sasl.jaas.config`, for PLAIN and SCRAM |
| `ssl.ca.location` | a PEM truststore |

Everything else is left out: it tunes a client that is not this one. Spark is told to redact what holds a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# For `spark.redaction.regex` and its two siblings: what Spark must not show in plans, logs and pages.
SECRETS_PATTERN = "(?i)secret|password|token|access[.]?key|jaas|sasl|credential"

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
# A broker that does not answer is said to be so in seconds; the Java client would try for minutes.
_ANSWER_MS = 15_000


def options(bootstrap_servers: str, kafka: Mapping[str, str]) -> dict[str, str]:
    """Options with which Spark reads what is committed, as the same user as the service.

    >>> found = options("broker:9093", {"security.protocol": "sasl_ssl", "linger.ms": "5"})
    >>> found["kafka.bootstrap.servers"], found["kafka.security.protocol"], "kafka.linger.ms" in found
    ('broker:9093', 'SASL_SSL', False)
    """
    plain = {
        "bootstrap.servers": bootstrap_servers,
        "isolation.level": "read_committed",
        "request.timeout.ms": str(_ANSWER_MS),
        "default.api.timeout.ms": str(_ANSWER_MS),
    }
    return {f"kafka.{name}": value for name, value in {**plain, **_security(kafka)}.items()}


def _security(kafka: Mapping[str, str]) -> dict[str, str]:
    mapped = {}
    if protocol := kafka.get("security.protocol"):
        mapped["security.protocol"] = protocol.upper()
    if mechanism := kafka.get("sasl.mechanism") or kafka.get("sasl.mechanisms"):
        mapped |= {"sasl.mechanism": mechanism, **_login(mechanism, kafka)}
    if authority := kafka.get("ssl.ca.location"):
        mapped |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(Path(authority).absolute())}
    return mapped


def _login(mechanism: str, kafka: Mapping[str, str]) -> dict[str, str]:
    module = _LOGIN_MODULES.get(mechanism)
    if module is None or "sasl.username" not in kafka:
        return {}
    user, password = (_quoted(kafka.get(f"sasl.{name}", "")) for name in ("username", "password"))
    return {"sasl.jaas.config": f"{module} required username={user} password={password};"}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
