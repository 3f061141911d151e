"""A client that is made while its certificate is replaced shows the one before, and the newest as soon as that is whole."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer

from retry.errors import SettingsInvalid
from retry.kafka import client_certificate, client_config
from retry.kafka.client_certificate import CERTIFICATE, KEY, Config
from tests.support.secured import Certificates

KEPT = "the certificate that was read before stays in use"


class Files:
    """The files of a certificate, and what clients were made with."""

    def __init__(self, folder: Path) -> None:
        self.authority, self.folder = Certificates(folder), folder
        self.shown: list[bytes] = []
        self.replace(*self.authority.sign("first"))

    def replace(self, key: bytes | None = None, certificate: bytes | None = None) -> None:
        for name, content in (("key", key), ("certificate", certificate)):
            if content is not None:
                (self.folder / name).write_bytes(content)

    def config(self) -> Config:
        return {
            "bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL", "logger": logging.getLogger("tests.clients"),
            CERTIFICATE: str(self.folder / "certificate"), KEY: str(self.folder / "key"),
        }  # fmt: skip

    def made(self) -> bytes:
        """The certificate of a client that is made now."""

        def make(config: Config) -> Producer:
            producer = Producer(config)
            self.shown.append(Path(config[CERTIFICATE]).read_bytes())
            return producer

        client_certificate.made(make, self.config())
        return self.shown[-1]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_while_the_files_do_not_belong_together_the_pair_before_stays_and_that_is_said_once(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    first = files.made()
    key, second = files.authority.sign("second")
    files.replace(certificate=second)
    assert [files.made() for _ in range(3)] == [first] * 3
    assert caplog.text.count(KEPT) == 1 and "key values mismatch" in caplog.text
    files.replace(key=key)
    assert files.made() == second != first
    # It stays in use, and not the first.
    files.replace(key=b"nothing")
    assert files.made() == second
    (files.folder / "key").unlink()
    assert files.made() == second


def test_files_that_never_could_be_used_are_refused_by_the_name_of_their_setting(files: Files) -> None:
    files.replace(certificate=files.authority.sign("other")[1])
    with pytest.raises(SettingsInvalid, match=r"RETRY_KAFKA_SSL_KEY_LOCATION.*key values mismatch"):
        client_config.producer(files.config())
    (files.folder / "certificate").unlink()
    with pytest.raises(SettingsInvalid, match=r"SSL_CERTIFICATE_LOCATION.*certificate a file that this user can read"):
        client_config.producer(files.config())


def test_another_mistake_is_named_whatever_was_usable_before(files: Files) -> None:
    files.made()
    with pytest.raises(SettingsInvalid, match=r"no\.such\.property"):
        client_config.producer({**files.config(), "no.such.property": "1"})


def in_memory() -> int:
    """How many files in memory this process has open."""
    links = []
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # of the listing itself
            links.append(str(fd.readlink()))
    return sum("client certificate" in link for link in links)


def test_pairs_that_were_replaced_are_not_kept(files: Files) -> None:
    files.made()
    before = in_memory()
    for _ in range(5):
        files.replace(*files.authority.sign("another"))
        files.made()
    assert in_memory() == before >= 2
