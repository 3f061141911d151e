"""The certificate that an HTTP server shows, and its key: two files, which may be replaced while it runs.

    certificate = read_certificate("RETRY_API", settings.api_tls_cert, settings.api_tls_key, host, "RETRY_API_ADDR")
    HttpServer(app, "http", host, port, certificate=certificate)

A new connection is made with the pair that the files hold at that time, within some seconds; connections that exist keep theirs.
A pair that cannot be used changes nothing: what was read before stays in use, which the log says once, and health all the time.
"""

from __future__ import annotations

import logging
import ssl
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from retry import clock
from retry.errors import SettingsInvalid
from retry.http_server.host_names import is_loopback
from retry.reloaded_file import ReloadedFile

log = logging.getLogger(__name__)

_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm)
_MS = 1_000


def read_certificate(prefix: str, certificate: Path | None, key: Path | None, host: str, address: str) -> Certificate | None:
    """Read the certificate that `<prefix>_TLS_CERT` and `<prefix>_TLS_KEY` name, None without; raises SettingsInvalid.

    Where others can reach `host`, which the variable `address` names, it is said aloud that there is none.
    """
    of_certificate, of_key = f"{prefix}_TLS_CERT", f"{prefix}_TLS_KEY"
    if certificate and key:
        return Certificate(of_certificate, certificate, of_key, key)
    if certificate or key:
        missing, other = (of_key, of_certificate) if certificate else (of_certificate, of_key)
        raise SettingsInvalid(missing, f"not set, but {other} is; a certificate and its key belong together")
    if not is_loopback(host):
        log.warning(
            "%s is not loopback: what is asked and answered there, tokens among it, goes over the network in clear; set %s "
            "and %s, or listen on loopback behind a proxy that has a certificate", address, of_certificate, of_key,
        )  # fmt: skip
    return None


class Certificate:
    """One server's certificate with the chain above it, and its key, both PEM, in the files that two settings name.

    Raises SettingsInvalid: a file cannot be read, the two do not belong together, or the certificate is not valid now.
    """

    def __init__(self, of_certificate: str, certificate: Path, of_key: str, key: Path) -> None:
        self._settings, self._files = (of_certificate, of_key), (certificate, key)
        self._texts: tuple[str, str] | None = None
        self._pair = ReloadedFile(of_certificate, certificate, self._parse)

    def current(self) -> ssl.SSLContext:
        return self._pair.current()

    def check_usable(self) -> None:
        """Check that a process which starts now could use both files; raises SettingsInvalid as when this object was made."""
        (of_certificate, of_key), (certificate, key) = self._settings, self._files
        Certificate(of_certificate, certificate, of_key, key)

    def ends_s(self) -> float:
        """Return when the certificate in use ends, in seconds since 1970."""
        self.current()
        return self._leaf.not_valid_after_utc.timestamp()

    def trouble(self) -> str:
        """Return why the files' present content is not in use, or why clients will refuse what is; empty where all is well."""
        return self._pair.trouble()

    def _parse(self, text: str) -> ssl.SSLContext:
        key_text = self._key_text()
        if (text, key_text) != self._texts:
            self._leaf, self._context = self._load_certificate(text, key_text)
            self._texts = text, key_text
        # Also of a pair that was good when it was read.
        self._check_time(self._leaf)
        return self._context

    def _key_text(self) -> str:
        try:
            return self._files[1].read_text()
        except OSError as error:
            raise SettingsInvalid(self._settings[1], f"{self._files[1]} cannot be read: {error}") from error
        except UnicodeDecodeError:
            raise SettingsInvalid(self._settings[1], f"{self._files[1]} is not UTF-8 text; is it the right file?") from None

    def _load_certificate(self, text: str, key_text: str) -> tuple[x509.Certificate, ssl.SSLContext]:
        (of_certificate, of_key), (certificate, key) = self._settings, self._files
        try:
            leaf = x509.load_pem_x509_certificates(text.encode())[0]
        except _UNREADABLE as error:
            raise SettingsInvalid(of_certificate, f"{certificate} has no certificate in PEM: {error}") from None
        try:
            private = load_pem_private_key(key_text.encode(), password=None)
        except _UNREADABLE as error:
            raise SettingsInvalid(of_key, f"{key} has no private key in PEM without a passphrase: {error}") from None
        if private.public_key() != leaf.public_key():
            fault = f"{key} is not the key of the first certificate in {certificate}, which must be the server's own"
            raise SettingsInvalid(of_key, fault)
        self._check_time(leaf)
        try:
            return leaf, _context(certificate, key)
        except OSError as error:
            raise SettingsInvalid(of_certificate, f"{certificate} and {key} cannot be used for TLS: {error}") from None

    def _check_time(self, leaf: x509.Certificate) -> None:
        now = datetime.fromtimestamp(clock.wall_ms() / _MS, UTC)
        tell = partial(SettingsInvalid, self._settings[0])
        if now >= leaf.not_valid_after_utc:
            raise tell(f"the certificate in {self._files[0]} has expired at {leaf.not_valid_after_utc.isoformat()}")
        if now < leaf.not_valid_before_utc:
            raise tell(f"the certificate in {self._files[0]} is not valid before {leaf.not_valid_before_utc.isoformat()}")


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client that asks for new keys again and again would keep this process busy at little cost of its own.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(certificate, key)
    return context
