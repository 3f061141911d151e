"""What the settings allow that lets somebody else in: said aloud at every start, since it is meant for a quiet hour and stays."""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from retry.settings import Settings

log = logging.getLogger(__name__)

_OFF = ("false", "f", "0")
# Of the clients of Kafka and of the schema registry.
_SECRET_FILES = ("ssl.key.location", "ssl.keystore.location", "sasl.kerberos.keytab")


def warn(settings: Settings) -> None:
    """One line for each."""
    for line in (*_certificates(settings.kafka), *_files(settings)):
        log.warning("%s", line)


def _certificates(kafka: Mapping[str, str]) -> Iterator[str]:
    if kafka.get("enable.ssl.certificate.verification", "").lower() in _OFF:
        yield (
            "RETRY_KAFKA_ENABLE_SSL_CERTIFICATE_VERIFICATION is off: whoever answers is taken for a broker; "
            "name the authority in RETRY_KAFKA_SSL_CA_LOCATION and leave this out"
        )
    if kafka.get("ssl.endpoint.identification.algorithm", "").lower() == "none":
        yield (
            "RETRY_KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM is none: a certificate of any host passes for a broker's; "
            "have the brokers' names in their certificates and leave this out"
        )


def _files(settings: Settings) -> Iterator[str]:
    # Of tokens the file has hashes, which anybody may read.
    secrets = {
        "RETRY_API_TOKENS": (settings.api_tokens, False), "RETRY_WEBHOOK_SECRETS": (settings.webhook_secrets, True),
        "RETRY_ENCRYPTION_KEYS": (settings.encryption_keys, True),
        "RETRY_API_TLS_KEY": (settings.api_tls_key, True), "RETRY_SCHEDULER_TLS_KEY": (settings.scheduler_tls_key, True),
        "RETRY_CONSOLE_TOKENS": (settings.console_tokens, False),
        "RETRY_CONSOLE_OIDC_ROLES": (settings.console_oidc_roles, False),
        "RETRY_CONSOLE_OIDC_CLIENT_SECRET": (settings.console_oidc_client_secret, True),
        "RETRY_CONSOLE_TLS_KEY": (settings.console_tls_key, True),
    }  # fmt: skip
    for prefix, properties in (("RETRY_KAFKA_", settings.kafka), ("RETRY_REGISTRY_", settings.registry)):
        for name in _SECRET_FILES:
            place = properties.get(name)
            secrets[prefix + name.upper().replace(".", "_")] = (Path(place) if place else None, True)
    for variable, (path, is_secret) in secrets.items():
        if path is None:
            continue
        try:
            mode = path.stat().st_mode
        except OSError:
            continue  # Whoever reads it says so.
        if mode & stat.S_IWOTH:
            yield f"{variable}: every user of this machine may change {path}; chmod o-rwx {path}"
        elif is_secret and mode & stat.S_IROTH:
            yield f"{variable}: every user of this machine may read {path}; chmod o-rwx {path}"
