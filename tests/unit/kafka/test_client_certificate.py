"""Clients are made by the files that the first one could be made from, until others were tried and nothing spoke against them."""

from __future__ import annotations

import gc
import logging
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer

from retry.errors import BrokersUnreachable, SettingsInvalid
from retry.kafka import client_config, connection
from retry.kafka.connection import AUTHORITY, CERTIFICATE, KEY, Config
from retry.settings import Settings
from tests.support.secured import Certificates

QUIET = logging.getLogger("tests.clients")


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
            "bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL", "logger": QUIET,
            AUTHORITY: str(self.authority.authority), CERTIFICATE: str(self.folder / "certificate"),
            KEY: str(self.folder / "key"),
        }  # fmt: skip

    def make(self, config: Config) -> Producer:
        producer = Producer(config)
        self.shown.append(Path(config[CERTIFICATE]).read_bytes())
        return producer

    def made(self) -> bytes:
        """The certificate of a client that is made now."""
        connection.make_client(self.make, self.config())
        return self.shown[-1]

    def tried(self, fault: Exception | None = None) -> bytes:
        """The certificate of a client that is made to see whether it is of use."""

        def see(_client: Producer) -> None:
            if fault is not None:
                raise fault

        connection.try_client(self.make, self.config(), see)
        return self.shown[-1]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_the_pair_that_the_first_client_was_made_from_stays_until_another_was_tried(files: Files) -> None:
    first = files.made()
    key, second = files.authority.sign("second")
    files.replace(certificate=second)
    assert files.made() == first
    with pytest.raises(connection.REFUSALS, match="key values mismatch"):
        files.tried()
    files.replace(key=key)
    # It is whole. Whether brokers know who signed it is another question.
    assert files.made() == first
    with pytest.raises(BrokersUnreachable):
        files.tried(BrokersUnreachable("b:1", "unknown ca"))
    assert files.made() == first
    assert files.tried() == files.made() == second != first
    (files.folder / "key").unlink()
    files.authority.authority.write_bytes(b"nothing")
    assert files.made() == second


def test_a_pair_that_was_of_no_use_at_first_is_read_again(files: Files) -> None:
    key, second = files.authority.sign("second")
    files.replace(certificate=second)
    with pytest.raises(connection.REFUSALS):
        files.made()
    files.replace(key=key)
    assert files.made() == second


def test_files_that_never_could_be_used_are_refused_by_the_name_of_their_setting(files: Files) -> None:
    files.replace(certificate=files.authority.sign("other")[1])
    with pytest.raises(SettingsInvalid, match=r"RETRY_KAFKA_SSL_KEY_LOCATION.*key values mismatch"):
        client_config.make_producer(files.config())
    (files.folder / "certificate").unlink()
    with pytest.raises(SettingsInvalid, match=r"SSL_CERTIFICATE_LOCATION.*certificate a file that this user can read"):
        client_config.make_producer(files.config())


def test_what_is_tried_is_refused_by_the_name_of_its_setting_while_clients_go_on(files: Files) -> None:
    properties = {name: text for name, text in files.config().items() if name.startswith(("ssl.", "security."))}
    settings = Settings(bootstrap_servers="127.0.0.1:1", kafka=properties)
    client_config.make_producer(files.config())
    files.replace(key=files.authority.sign("other")[0])
    client_config.make_producer(files.config())
    with pytest.raises(SettingsInvalid, match=r"RETRY_KAFKA_SSL_KEY_LOCATION.*key values mismatch"):
        client_config.try_newest(settings, lambda _client: None, 0.1)
    files.replace(*files.authority.sign("another"))
    with pytest.raises(BrokersUnreachable, match=r"127\.0\.0\.1:1 "):
        client_config.try_newest(settings, lambda _client: None, 0.1)


def test_another_mistake_is_named_whatever_was_usable_before(files: Files) -> None:
    files.made()
    with pytest.raises(SettingsInvalid, match=r"no\.such\.property"):
        client_config.make_producer({**files.config(), "no.such.property": "1"})


def test_a_folder_of_authorities_is_left_to_the_client(files: Files) -> None:
    config = {**files.config(), AUTHORITY: str(files.folder)}
    connection.make_client(files.make, config)
    assert connection._list_files(config) == tuple((name, config[name]) for name in (CERTIFICATE, KEY))


def in_memory() -> int:
    """How many files in memory this process has open, without those that only wait to be collected."""
    gc.collect()
    links = []
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # of the listing itself
            links.append(str(fd.readlink()))
    return sum("client certificate" in link for link in links)


def test_files_that_were_replaced_are_not_kept(files: Files) -> None:
    files.made()
    before = in_memory()
    for _ in range(5):
        files.replace(*files.authority.sign("another"))
        files.tried()
    assert in_memory() == before >= 3
