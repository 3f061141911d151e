"""Why brokers and this process do not come together though they reach each other: a login or a certificate is refused.

librdkafka tells whoever waits for an answer only that none came. What became of its connections it tells a callback, and of a
certificate only that it was not trusted; OpenSSL says why, where this process looks at the certificate by itself.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from retry.clock import Deadline
from retry.kafka import client_certificate

Config = dict[str, Any]

# What a client says of a connection that failed.
OF_CONNECTIONS = (KafkaError._SSL, KafkaError._TRANSPORT, KafkaError._AUTHENTICATION, KafkaError._RESOLVE)
_TOOK = re.compile(r" \(after \d+ms in state .*")
_SILENT = logging.Logger("nobody", logging.CRITICAL + 1)
_WITHIN_S, _POLL_S, _LOOK_S = 10.0, 0.1, 10.0
_SECURED = ("ssl", "sasl_ssl", "sasl_plaintext")
# OpenSSL's numbers of what is wrong with a certificate.
_NOT_YET_VALID, _EXPIRED, _FOREIGN = 9, 10, (18, 19, 20, 21)
_ADVICE = {
    _NOT_YET_VALID: "look at the clocks, or at the certificate of the brokers",
    _EXPIRED: "renew the certificate of the brokers, or look at the clock of this machine",
    **dict.fromkeys(_FOREIGN, "let RETRY_KAFKA_SSL_CA_LOCATION name the file of who signed it"),
}
_OTHERWISE = "correct RETRY_BOOTSTRAP_SERVERS, or the names that the certificate is made for"


class ConnectionErrors:
    """Errors of a client's connections; `note_error` is its `error_cb`."""

    def __init__(self) -> None:
        self._errors: list[KafkaError] = []

    def note_error(self, error: KafkaError) -> None:
        """Keep an error of a connection."""
        if error.code() in OF_CONNECTIONS:
            self._errors.append(error)

    def find_newest(self, code: int | None = None) -> str:
        """Find the text of the newest error, or of the newest with this code; empty where there is none."""
        texts = [_TOOK.sub("", error.str()) for error in self._errors if code is None or error.code() == code]
        return texts[-1] if texts else ""


def quiet_config(config: Config, errors: ConnectionErrors) -> Config:
    """Change a configuration so that errors of connections are kept and nothing is logged."""
    return {**config, "logger": _SILENT, "error_cb": errors.note_error}


def find_refusal(config: Config) -> str:
    """Ask brokers once more, for ten seconds at most, and say who refuses whom and why; empty where nobody does.

    Brokers without TLS and without logins are not asked.
    """
    if str(config.get("security.protocol", "")).lower() not in _SECURED:
        return ""
    errors, deadline = ConnectionErrors(), Deadline(_WITHIN_S)
    client: AdminClient = client_certificate.make_client(AdminClient, quiet_config(config, errors))
    while not deadline.has_passed():
        client.poll(_POLL_S)
        if said := errors.find_newest(KafkaError._AUTHENTICATION):
            return f"they refuse the login ({said}): correct RETRY_KAFKA_SASL_*"
        if said := errors.find_newest(KafkaError._SSL):
            return find_certificate_fault(config) or f"TLS failed ({said}): correct RETRY_KAFKA_SSL_*"
    return ""


def find_certificate_fault(config: Config) -> str:
    """Look at the certificates of brokers by the same trust as a client, and say what is wrong; empty where nothing is found."""
    context = trust(config)
    found = (_look_at(server.strip(), context) for server in str(config["bootstrap.servers"]).split(","))
    return next((fault for fault in found if fault), "")


def _look_at(server: str, context: ssl.SSLContext) -> str:
    host, _, port = server.rpartition("://")[-1].rpartition(":")
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), _LOOK_S) as plain,
            context.wrap_socket(plain, server_hostname=host.strip("[]")),
        ):
            return ""
    except ssl.SSLCertVerificationError as error:
        advice = _ADVICE.get(error.verify_code, _OTHERWISE)
        return f"the certificate of {server} is not trusted: {error.verify_message}; {advice}"
    except (OSError, ValueError):
        # Another server, or a handshake that fails for another reason, of which librdkafka has told.
        return ""


def trust(config: Config) -> ssl.SSLContext:
    """Whom a configuration trusts, as OpenSSL is told it."""
    location = str(config.get(client_certificate.AUTHORITY, "probe"))
    authority = None if location in ("", "probe") else Path(location)
    is_folder = authority is not None and authority.is_dir()
    context = ssl.create_default_context(
        cafile=authority if authority is not None and not is_folder else None,
        capath=authority if is_folder else None, cadata=config.get("ssl.ca.pem"),
    )  # fmt: skip
    # librdkafka does not demand this.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if str(config.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        context.check_hostname = False
    return context
