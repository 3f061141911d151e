"""A pair of files that cannot be used names its variable at the start, and changes nothing while the server runs."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path

import pytest

from retry import clock, reloaded_file
from retry.errors import SettingsInvalid
from retry.http_server.certificate import Certificate, read_certificate
from tests.support.secured import Certificates

DAY = timedelta(days=1)
CERT, KEY = "RETRY_API_TLS_CERT", "RETRY_API_TLS_KEY"


class Files:
    """The two files of a server, and what signs for them."""

    def __init__(self, folder: Path) -> None:
        self.authority, self.certificate, self.key = Certificates(folder), folder / "tls.crt", folder / "tls.key"
        self.renew()

    def renew(self, begins: timedelta = -DAY, ends: timedelta = DAY, passphrase: str = "") -> None:
        key, certificate = self.authority.sign("server", passphrase, begins=begins, ends=ends)
        self.certificate.write_bytes(certificate)
        self.key.write_bytes(key)

    def spoil(self, how: str) -> tuple[str, str]:
        """Make them unusable; the variable that is to blame, and words of why."""
        if how in ("expired", "early"):
            self.renew(-2 * DAY, -DAY) if how == "expired" else self.renew(DAY, 2 * DAY)
            return CERT, "has expired at" if how == "expired" else "is not valid before"
        if how == "mismatch":
            self.key.write_bytes(self.authority.sign("server")[0])
            return KEY, "is not the key of the first certificate in"
        if how == "locked":
            self.renew(passphrase="a passphrase")
            return KEY, "has no private key in PEM without a passphrase"
        which, file = (CERT, self.certificate) if how.startswith("certificate") else (KEY, self.key)
        if how.endswith("absent"):
            file.unlink()
            return which, "cannot be read"
        # As whoever copies a file over it leaves it for a moment.
        file.write_bytes(file.read_bytes()[:100])
        return which, "in PEM"

    def open(self) -> Certificate:
        found = read_certificate("RETRY_API", self.certificate, self.key, "127.0.0.1", "RETRY_API_ADDR")
        assert found is not None
        return found


FAULTS = ["expired", "early", "mismatch", "locked", "certificate absent", "key absent", "certificate cut", "key cut"]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Read again each time that somebody asks."""
    monkeypatch.setattr(reloaded_file, "_READ_EVERY_S", 0.0)
    return Files(tmp_path)


@pytest.mark.parametrize("fault", FAULTS)
def test_files_that_cannot_be_used_are_refused_at_the_start(files: Files, fault: str) -> None:
    variable, words = files.spoil(fault)
    with pytest.raises(SettingsInvalid, match=words) as refused:
        files.open()
    assert refused.value.name == variable
    assert "PRIVATE KEY" not in str(refused.value)


@pytest.mark.parametrize("fault", FAULTS)
def test_files_that_cannot_be_used_change_nothing_later_and_are_told(
    files: Files, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = files.open()
    before = certificate.current()
    assert certificate.trouble() == ""
    assert 0.9 * DAY.total_seconds() < certificate.ends_s() - clock.wall_ms() / 1_000 <= DAY.total_seconds()
    variable, words = files.spoil(fault)
    for _ in range(3):
        assert certificate.current() is before
    assert certificate.trouble().startswith(f"{variable}: ") and words in certificate.trouble()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "what was read before stays in use" in caplog.text
    files.renew()
    assert certificate.current() is not before
    assert certificate.trouble() == ""


def test_files_that_are_the_same_are_not_loaded_again(files: Files) -> None:
    certificate = files.open()
    before = certificate.current()
    assert certificate.current() is before


def test_a_certificate_that_expires_while_it_is_in_use_is_told(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = files.open()
    before = certificate.current()
    in_two_days_ms = clock.wall_ms() + 2 * 86_400_000
    monkeypatch.setattr(clock, "wall_ms", lambda: in_two_days_ms)
    assert "has expired at" in certificate.trouble()
    assert certificate.ends_s() < in_two_days_ms / 1_000
    assert certificate.current() is before


@pytest.mark.parametrize("missing", [CERT, KEY])
def test_one_file_alone_is_a_mistake(files: Files, missing: str) -> None:
    certificate, key = (None, files.key) if missing == CERT else (files.certificate, None)
    with pytest.raises(SettingsInvalid, match="belong together") as refused:
        read_certificate("RETRY_API", certificate, key, "127.0.0.1", "RETRY_API_ADDR")
    assert refused.value.name == missing


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "api.example.com"])
def test_what_others_can_reach_without_a_certificate_is_said_aloud(host: str, caplog: pytest.LogCaptureFixture) -> None:
    assert read_certificate("RETRY_API", None, None, host, "RETRY_API_ADDR") is None
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert line.startswith("RETRY_API_ADDR is not loopback") and CERT in line and KEY in line


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_certificate(host: str, caplog: pytest.LogCaptureFixture) -> None:
    assert read_certificate("RETRY_API", None, None, host, "RETRY_API_ADDR") is None
    assert caplog.records == []
