"""The files by which brokers and this process know each other, and why they do not come together though they reach each other."""

from __future__ import annotations

import logging
import os
import re
import socket
import ssl
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from retry.clock import Deadline

# The files by which brokers and this process know each other, as they were when they could be used last.
#
# librdkafka reads them for each client that is made, and clients are made as long as a process runs: for a shard that is taken
# over, or after a commit in doubt. Files are replaced one after the other, and between the two they are of no use; or they are
# whole, and brokers refuse them. So what the first client was made from is kept in memory for those that follow, until others
# were tried.

AUTHORITY, CERTIFICATE, KEY, KEYSTORE = FILES = (
    "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location",
)  # fmt: skip
# What a client says of a configuration that it cannot use.
REFUSALS = (KafkaException, TypeError, ValueError, AttributeError)
# Only Linux has files that are in memory alone.
_IN_MEMORY = hasattr(os, "memfd_create")

Config = dict[str, Any]
_Client = TypeVar("_Client")
_Named = tuple[tuple[str, str], ...]


class _Held:
    def __init__(self, files: _Named) -> None:
        self._fds = {name: self._write_content(Path(file).read_bytes()) for name, file in files}

    def _write_content(self, content: bytes) -> int:
        fd = os.memfd_create("client certificate")
        weakref.finalize(self, os.close, fd)
        while content:
            content = content[os.write(fd, content) :]
        return fd

    def make_client(self, make: Callable[[Config], _Client], config: Config) -> _Client:
        return make({**config, **{name: f"/proc/self/fd/{fd}" for name, fd in self._fds.items()}})


_IN_USE: dict[_Named, _Held] = {}


def make_client(make: Callable[[Config], _Client], config: Config) -> _Client:
    """Make a client from the TLS files in use; raises one of `REFUSALS`. Safe in any thread.

    In use is the content of those files from which the first client could be made.
    """
    files = _list_files(config)
    if held := _IN_USE.get(files):
        return held.make_client(make, config)
    client, held = _make_from_files(files, make, config)
    if held:
        _IN_USE.setdefault(files, held)
    return client


def try_client(make: Callable[[Config], _Client], config: Config, see: Callable[[_Client], object]) -> _Client:
    """Make a client from what the TLS files hold now; from then on that content is in use.

    Raises one of `REFUSALS`, or whatever `see` raises of the client: then what was in use stays so.
    """
    files = _list_files(config)
    client, held = _make_from_files(files, make, config)
    see(client)
    if held:
        _IN_USE[files] = held
    return client


def _make_from_files(files: _Named, make: Callable[[Config], _Client], config: Config) -> tuple[_Client, _Held | None]:
    if files and _IN_MEMORY:
        with suppress(OSError, *REFUSALS):
            held = _Held(files)
            return held.make_client(make, config), held
    # It says better than we could what is wrong with a file.
    return make(config), None


def _list_files(config: Mapping[str, Any]) -> _Named:
    """The files that a configuration names; without a folder of authorities, which is not replaced as a whole."""
    named = {name: str(config[name]) for name in FILES if config.get(name)}
    authority = named.get(AUTHORITY, "")
    if authority == "probe" or Path(authority).is_dir():
        named.pop(AUTHORITY, None)
    return tuple(named.items())


# Why brokers and this process do not come together though they reach each other: a login or a certificate is refused.
#
# librdkafka tells whoever waits for an answer only that none came. What became of its connections it tells a callback, and of a
# certificate only that it was not trusted; OpenSSL says why, where this process looks at the certificate by itself.

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
    """Ask brokers with TLS or logins once more, for 10 s at most, and say who refuses whom and why; empty where nobody does."""
    if str(config.get("security.protocol", "")).lower() not in _SECURED:
        return ""
    errors, deadline = ConnectionErrors(), Deadline(_WITHIN_S)
    client: AdminClient = make_client(AdminClient, quiet_config(config, errors))
    while not deadline.has_passed():
        client.poll(_POLL_S)
        if said := errors.find_newest(KafkaError._AUTHENTICATION):
            return f"they refuse the login ({said}): correct RETRY_KAFKA_SASL_*"
        if said := errors.find_newest(KafkaError._SSL):
            return find_certificate_fault(config) or f"TLS failed ({said}): correct RETRY_KAFKA_SSL_*"
    return ""


def find_certificate_fault(config: Config) -> str:
    """Look at the certificates of brokers by the same trust as a client, and say what is wrong; empty where nothing is found."""
    context = build_trust(config)
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


def build_trust(config: Config) -> ssl.SSLContext:
    """Build the TLS context that trusts the same certificates as a client configuration does."""
    location = str(config.get(AUTHORITY, "probe"))
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
