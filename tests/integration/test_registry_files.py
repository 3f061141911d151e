"""The registry's client against a real HTTPS server that asks for certificates, whose files are replaced meanwhile."""

from __future__ import annotations

import logging
import shutil
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from retry.kafka.schema_registry import Schemas
from tests.support.registry import RegistryServer
from tests.support.secured import Certificates
from tests.support.simulated_clock import Simulated

Put = Callable[[Path], object]


@pytest.fixture
def authority(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def server(authority: Certificates) -> Iterator[RegistryServer]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.files("registry"))
    tls.load_verify_locations(authority.authority)
    tls.verify_mode = ssl.CERT_REQUIRED
    running = RegistryServer(tls)
    for number in range(10):
        running.add(number, '"string"')
    yield running
    running.close()


@pytest.fixture
def shown_files(tmp_path: Path, authority: Certificates) -> tuple[Path, Path]:
    """The files that the settings name."""
    files = tmp_path / "client.pem", tmp_path / "client.key"
    put_files(files, authority.files("first"))
    return files


def put_files(files: tuple[Path, ...], made: tuple[Path, ...]) -> None:
    for mine, other in zip(files, made, strict=True):
        shutil.copy(other, mine)


@pytest.fixture
def ask(
    server: RegistryServer, authority: Certificates, shown_files: tuple[Path, Path], stepped_clock: Simulated
) -> Callable[[int], str]:
    """Ask for a schema some time later, and say as whom that was done last."""
    schemas = Schemas({
        "url": server.url, "timeout": "60", "max.retries": "0", "ssl.ca.location": str(authority.authority),
        "ssl.certificate.location": str(shown_files[0]), "ssl.key.location": str(shown_files[1]),
    })  # fmt: skip

    def ask_server(number: int) -> str:
        stepped_clock.now_s += 11.0
        assert schemas(number) == ("AVRO", ('"string"',))
        return server.askers[-1]

    return ask_server


def test_files_that_were_replaced_are_used_for_the_next_question(ask, shown_files, authority):
    assert ask(1) == "first"
    put_files(shown_files, authority.files("second"))
    assert ask(2) == "second"
    assert ask(3) == "second"


def test_a_certificate_without_its_key_changes_nothing(ask, shown_files, authority, caplog):
    second = authority.files("second")
    put_files(shown_files[:1], second[:1])
    with caplog.at_level(logging.WARNING):
        assert [ask(1), ask(2)] == ["first", "first"]
    assert len(caplog.records) == 1 and "KEY_VALUES_MISMATCH" in caplog.text
    put_files(shown_files, second)
    assert ask(3) == "second"


def test_a_certificate_that_the_registry_refuses_changes_nothing(ask, shown_files, authority, tmp_path, caplog):
    (tmp_path / "strange").mkdir()
    put_files(shown_files, Certificates(tmp_path / "strange").files("stranger"))
    with caplog.at_level(logging.WARNING):
        assert [ask(1), ask(2)] == ["first", "first"]
    assert len(caplog.records) == 1 and "are not used yet" in caplog.text
    put_files(shown_files, authority.files("second"))
    assert ask(3) == "second"


def test_a_schema_that_is_missing_is_an_answer(ask, shown_files, authority, server):
    put_files(shown_files, authority.files("second"))
    with pytest.raises(Exception, match="no schema 77"):
        ask(77)
    assert server.askers[-1] == "second" and ask(1) == "second"


def test_an_authority_that_was_replaced_is_used_for_the_next_question(server, authority, shown_files, stepped_clock, tmp_path):
    """Begin with an authority that does not know the registry, and replace it."""
    (tmp_path / "strange").mkdir()
    known = tmp_path / "known.pem"
    shutil.copy(Certificates(tmp_path / "strange").authority, known)
    schemas = Schemas({
        "url": server.url, "timeout": "60", "max.retries": "0", "ssl.ca.location": str(known),
        "ssl.certificate.location": str(shown_files[0]), "ssl.key.location": str(shown_files[1]),
    })  # fmt: skip
    with pytest.raises(Exception, match="did not answer"):
        schemas(1)
    shutil.copy(authority.authority, known)
    stepped_clock.now_s += 11.0
    assert schemas(1) == ("AVRO", ('"string"',))
