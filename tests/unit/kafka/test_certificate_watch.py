"""Files of certificates that were replaced: when they come into use, what keeps them from that, and that it happens once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from hypothesis import given
from hypothesis import strategies as st

from retry.errors import BrokersUnreachable, SettingsInvalid
from retry.process.certificates import FOR_EVER, CertificateWatch, choose_delay_s, list_watched
from retry.settings import Settings
from tests.support.secured import Certificates
from tests.support.simulated_clock import Simulated, simulated_clock

LEFT_S = 400.0
AGAIN_S = 31.0


class Files:
    """The files of one process, and what comes of looking at them."""

    def __init__(self, folder: Path, now: Simulated) -> None:
        self.certificates, self.folder, self.now = Certificates(folder), folder, now
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.replace("old", timedelta(seconds=LEFT_S))
        self.settings = Settings(bootstrap_servers="127.0.0.1:1", kafka={
            "security.protocol": "ssl", "ssl.ca.location": str(self.certificates.authority),
            "ssl.certificate.location": str(self.certificate), "ssl.key.location": str(self.key),
        })  # fmt: skip
        self.fault: Exception | None = None
        self.tried = self.renewed = 0

    def replace(self, name: str, ends: timedelta = timedelta(days=1)) -> None:
        key, certificate = self.certificates.sign(name, ends=ends)
        self.certificate.write_bytes(certificate)
        self.key.write_bytes(key)

    def watch(self, drawn: float = 0.5) -> CertificateWatch:
        return CertificateWatch(self.settings, self.would_start, self.renew, lambda: drawn)

    def would_start(self) -> None:
        self.tried += 1
        if self.fault is not None:
            raise self.fault

    def renew(self) -> None:
        self.renewed += 1


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    with simulated_clock() as now:
        now.now_s = datetime.now(UTC).timestamp()
        yield Files(tmp_path, now)


@given(st.floats(-1e9, 1e9), st.floats(0.0, 1.0))
def test_a_process_waits_no_longer_than_five_minutes_and_a_quarter_of_what_is_left(left_s: float, drawn: float) -> None:
    assert 0.0 <= choose_delay_s(left_s, drawn) <= max(0.0, min(300.0, left_s / 4))


def test_files_that_can_be_used_come_into_use_once_after_the_time_that_was_drawn(files: Files) -> None:
    watch = files.watch()
    watch.check_files()
    files.replace("new")
    for _ in range(3):
        watch.check_files()
    # That the brokers answer was asked once, and will be again when the time has come.
    assert (files.tried, files.renewed) == (1, 0)
    files.now.pause(LEFT_S / 8 - 3)
    watch.check_files()
    assert (files.tried, files.renewed) == (1, 0)
    files.now.pause(6)
    for _ in range(3):
        watch.check_files()
    assert (files.tried, files.renewed) == (2, 1)


def test_nothing_is_waited_for_once_the_old_certificate_has_ended(files: Files) -> None:
    watch = files.watch(1.0)
    files.now.pause(LEFT_S + 1)
    files.replace("new")
    watch.check_files()
    assert files.renewed == 1


def test_files_that_are_refused_are_told_once_and_tried_again(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    watch = files.watch(0.0)
    files.replace("of somebody else")
    files.fault = BrokersUnreachable("b:1", "unknown ca")
    for _ in range(5):
        watch.check_files()
    assert (files.tried, files.renewed) == (1, 0)
    files.now.pause(AGAIN_S)
    watch.check_files()
    assert files.tried == 2
    assert caplog.text.count("what this process began with stays in use") == 1 and "unknown ca" in caplog.text
    # Others are tried at once.
    files.replace("new")
    files.fault = SettingsInvalid("RETRY_POLICIES", "it cannot be read")
    watch.check_files()
    assert files.tried == 3 and caplog.text.count("stays in use") == 2
    files.fault = None
    files.now.pause(AGAIN_S)
    watch.check_files()
    assert files.renewed == 1
    assert "PRIVATE" not in caplog.text


def test_what_could_be_used_is_tried_again_when_its_time_has_come(files: Files) -> None:
    watch = files.watch()
    files.replace("new")
    watch.check_files()
    files.now.pause(LEFT_S / 8 + 1)
    files.fault = BrokersUnreachable("b:1", "timed out")
    watch.check_files()
    assert (files.tried, files.renewed) == (2, 0)
    # All that were waiting come back with other times.
    files.fault = None
    files.now.pause(AGAIN_S)
    watch.check_files()
    assert (files.tried, files.renewed) == (3, 0)
    files.now.pause(LEFT_S / 8)
    watch.check_files()
    assert files.renewed == 1


def test_who_began_with_the_new_files_has_nothing_to_do(files: Files) -> None:
    files.watch()
    files.replace("new")
    begun_anew = files.watch(0.0)
    for file in (files.certificate, files.key):
        file.write_bytes(file.read_bytes())
    begun_anew.check_files()
    assert (files.tried, files.renewed) == (0, 0)


def test_files_that_are_put_back_change_nothing(files: Files) -> None:
    watch, before = files.watch(), (files.certificate.read_bytes(), files.key.read_bytes())
    files.replace("new")
    watch.check_files()
    files.certificate.write_bytes(before[0])
    files.key.write_bytes(before[1])
    files.now.pause(LEFT_S)
    watch.check_files()
    assert files.renewed == 0


def test_another_authority_is_a_change_too_and_so_is_a_file_in_its_folder(files: Files, tmp_path: Path) -> None:
    folder = tmp_path / "authorities"
    folder.mkdir()
    files.settings.kafka["ssl.ca.location"] = str(folder)
    watch = files.watch(0.0)
    watch.check_files()
    assert files.tried == 0
    (folder / "other.pem").write_bytes(files.certificates.authority.read_bytes())
    watch.check_files()
    assert files.renewed == 1


def test_without_tls_nothing_is_watched(files: Files) -> None:
    plain = Settings(kafka={**files.settings.kafka, "security.protocol": "sasl_plaintext"})
    assert list_watched(plain) == [] and len(list_watched(files.settings)) == 3
    watch = CertificateWatch(plain, files.would_start, files.renew)
    files.replace("new")
    watch.check_files()
    assert (files.tried, watch.shown) == (0, FOR_EVER)


def test_when_the_certificate_ends_is_known_of_pem_and_of_a_keystore(files: Files) -> None:
    key, certificate = files.certificates.sign("kept")
    shown = x509.load_pem_x509_certificate(certificate)
    store = files.folder / "client.p12"
    private, locked = load_pem_private_key(key, None), BestAvailableEncryption(b"secret")
    store.write_bytes(pkcs12.serialize_key_and_certificates(b"n", private, shown, None, locked))  # type: ignore[arg-type]
    ways = {
        "ssl.keystore.location": {"ssl.keystore.location": str(store), "ssl.keystore.password": "secret"},
        "ssl.certificate.pem": {"ssl.certificate.pem": certificate.decode()},
    }
    for way in ways.values():
        settings = Settings(kafka={"security.protocol": "sasl_ssl", **way})
        validity = CertificateWatch(settings, files.would_start, files.renew).shown
        assert validity == (shown.not_valid_before_utc.timestamp(), shown.not_valid_after_utc.timestamp())
    assert files.watch().shown.ends_s == pytest.approx(files.now.now_s + LEFT_S, abs=10)
    store.write_bytes(b"nothing")
    broken = Settings(kafka={"security.protocol": "ssl", **ways["ssl.keystore.location"]})
    assert CertificateWatch(broken, files.would_start, files.renew).shown == FOR_EVER
