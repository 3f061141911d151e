"""What lets somebody else in is said aloud, one line each, with what mends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from retry.process import start
from retry.settings import read_settings


def list_warnings(caplog: pytest.LogCaptureFixture, **environ: str) -> list[str]:
    caplog.clear()
    start.warn_of_insecure(read_settings({f"RETRY_{name}": value for name, value in environ.items()}))
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_disabled_checks_of_certificates_are_said_aloud(caplog: pytest.LogCaptureFixture) -> None:
    checks, names = "KAFKA_ENABLE_SSL_CERTIFICATE_VERIFICATION", "KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM"
    (line,) = list_warnings(caplog, **{checks: "False"})
    assert line.startswith(f"RETRY_{checks} is off") and "RETRY_KAFKA_SSL_CA_LOCATION" in line
    (line,) = list_warnings(caplog, **{names: "none"})
    assert line.startswith(f"RETRY_{names} is none")
    assert list_warnings(caplog, **{checks: "true", names: "https"}) == []


@pytest.mark.parametrize(
    "setting",
    [
        "WEBHOOK_SECRETS", "KAFKA_SSL_KEY_LOCATION", "KAFKA_SSL_KEYSTORE_LOCATION", "REGISTRY_SSL_KEY_LOCATION", "API_TLS_KEY",
        "SCHEDULER_TLS_KEY", "ENCRYPTION_KEYS",
    ],
)  # fmt: skip
def test_a_secret_that_everybody_may_read_or_change_is_said_aloud(
    setting: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "secret"
    file.write_text("x")
    for mode, word in ((0o602, "change"), (0o604, "read"), (0o600, ""), (0o660, "")):
        file.chmod(mode)
        told = list_warnings(caplog, **{setting: str(file), "REGISTRY_URL": "http://r"})
        expected = f"RETRY_{setting}: every user of this machine may {word} {file}; chmod o-rwx {file}"
        assert told == ([expected] if word else [])


def test_a_file_of_hashes_may_be_read_and_not_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "tokens"
    file.touch()
    file.chmod(0o644)
    assert list_warnings(caplog, API_TOKENS=str(file)) == []
    file.chmod(0o646)
    assert len(list_warnings(caplog, API_TOKENS=str(file))) == 1


def test_a_file_that_is_not_there_is_no_concern_here(caplog: pytest.LogCaptureFixture) -> None:
    assert list_warnings(caplog, WEBHOOK_SECRETS="/no/such/file") == []
