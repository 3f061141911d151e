"""Files of tokens and of signing secrets: read again when they change, and not used with a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from retry import clock
from retry.delivery.webhooks.standard_webhooks import secret_of, secrets_of
from retry.errors import SettingsInvalid
from retry.scheduling.timers.api_tokens import Tokens, make_token
from retry.settings import ReloadedFile

ONE, OTHER = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_" + "QUJD" * 10


class Later:
    """The machine's clocks, some time ahead."""

    ahead_s = 0.0

    def wall_ms(self) -> int:
        return clock.MACHINE.wall_ms()

    def monotonic_s(self) -> float:
        return clock.MACHINE.monotonic_s() + self.ahead_s

    pause = wait = staticmethod(lambda *_: None)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    made = Later()
    monkeypatch.setattr(clock, "_clock", made)
    return made


def test_tokens_rotate(tmp_path: Path, later: Later) -> None:
    (old, old_line), (new, new_line) = make_token("billing"), make_token("billing")
    file = tmp_path / "tokens"
    file.write_text(f"# tokens\n{old_line}\n")
    tokens = Tokens(file)
    assert (tokens.team(old), tokens.team(new), tokens.team("")) == ("billing", None, None)
    file.write_text(f"{old_line}\n{new_line}\n")
    later.ahead_s += 10
    assert (tokens.team(old), tokens.team(new)) == ("billing", "billing")
    file.write_text(f"{new_line}\n")
    later.ahead_s += 10
    assert (tokens.team(old), tokens.team(new)) == (None, "billing")
    file.write_text("not a line\n")
    later.ahead_s += 10
    assert tokens.team(new) == "billing"
    with pytest.raises(SettingsInvalid, match=r"tokens:1: make the line"):
        Tokens(file)
    assert old not in old_line


def test_secrets_rotate(tmp_path: Path, later: Later) -> None:
    file = tmp_path / "secrets"
    file.write_text(f"{ONE}\n")
    secrets = ReloadedFile("RETRY_WEBHOOK_SECRETS", file, secrets_of)
    assert secrets.current() == [secret_of(ONE)]
    file.write_text(f"{OTHER}\n{ONE}\n")
    later.ahead_s += 10
    assert secrets.current() == [secret_of(OTHER), secret_of(ONE)]
    file.unlink()
    later.ahead_s += 10
    assert secrets.current() == [secret_of(OTHER), secret_of(ONE)]
    with pytest.raises(SettingsInvalid, match="RETRY_WEBHOOK_SECRETS"):
        ReloadedFile("RETRY_WEBHOOK_SECRETS", file, secrets_of)
