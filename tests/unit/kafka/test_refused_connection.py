"""Why brokers that are reached are of no use: real TLS handshakes with servers whose certificates have one fault each."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from retry.errors import BrokersRefused, BrokersUnreachable
from retry.kafka import client_config
from retry.settings import Settings
from tests.support.secured import Certificates

DAY = timedelta(days=1)


@contextmanager
def listening(folder: Path, pem: bytes) -> Iterator[int]:
    """A TLS server with this key and certificate that says nothing else; its port."""
    keystore = folder / "server.pem"
    keystore.write_bytes(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keystore)

    def serve() -> None:
        # Ends when the socket is closed.
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection, suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
                    secured.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)


def settings(port: int, authority: Path, **more: str) -> Settings:
    properties = {"security.protocol": "SSL", "ssl.ca.location": str(authority), **more}
    return Settings(bootstrap_servers=f"127.0.0.1:{port}", kafka=properties)


@pytest.mark.parametrize(("fault", "said"), [
    ("expired", "certificate has expired; renew the certificate"),
    ("not yet valid", "certificate is not yet valid; look at the clocks"),
    ("foreign", "RETRY_KAFKA_SSL_CA_LOCATION"),
])  # fmt: skip
def test_a_start_says_what_is_wrong_with_the_certificate_of_a_broker(tmp_path: Path, fault: str, said: str) -> None:
    ours, theirs = (tmp_path / name for name in ("ours", "theirs"))
    for folder in (ours, theirs):
        folder.mkdir()
    trusted, foreign = Certificates(ours), Certificates(theirs)
    signed = {
        "expired": lambda: trusted.sign("broker", begins=-2 * DAY, ends=-DAY),
        "not yet valid": lambda: trusted.sign("broker", begins=DAY, ends=2 * DAY),
        "foreign": lambda: foreign.sign("broker"),
    }[fault]()
    with listening(tmp_path, b"".join(signed)) as port, pytest.raises(BrokersRefused) as refused:
        client_config.connect_admin(settings(port, trusted.authority), within_s=0.5)
    assert f"the certificate of 127.0.0.1:{port} is not trusted" in str(refused.value)
    assert said in str(refused.value)


def test_a_start_says_that_a_certificate_is_made_for_another_name(tmp_path: Path) -> None:
    trusted = Certificates(tmp_path)
    refused = pytest.raises(BrokersRefused, match="correct RETRY_BOOTSTRAP_SERVERS, or the names")
    signed = b"".join(trusted.sign("broker"))
    with listening(tmp_path, signed) as port, socket.create_server(("127.0.0.2", port)) as other, refused:
        _forward(other, port)
        there = settings(port, trusted.authority)
        client_config.connect_admin(Settings(bootstrap_servers=f"127.0.0.2:{port}", kafka=there.kafka), within_s=0.5)


def _forward(server: socket.socket, port: int) -> None:
    """Pass bytes of connections on to a port of 127.0.0.1."""

    def copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with suppress(OSError):
            while True:
                near, _ = server.accept()
                far = socket.create_connection(("127.0.0.1", port))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=copy, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()


def test_a_server_whose_certificate_is_trusted_and_that_does_not_answer_is_unreachable(tmp_path: Path) -> None:
    trusted = Certificates(tmp_path)
    with listening(tmp_path, b"".join(trusted.sign("broker"))) as port, pytest.raises(BrokersUnreachable) as unreachable:
        client_config.connect_admin(settings(port, trusted.authority), within_s=0.5)
    assert not isinstance(unreachable.value, BrokersRefused)
