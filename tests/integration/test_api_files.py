"""Files of tokens and of signing secrets: read again when they change, and not used with a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from retry import clock
from retry.errors import SettingsInvalid
from retry.http_client.signatures import SETTING, SigningKeys, sign_body
from retry.reloaded_file import ReloadedFile
from retry.scheduling.timers.callers import Tokens, make_token

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


def _team(tokens: Tokens, token: str) -> str | None:
    found = tokens.find(token)
    return found and found.name


def test_tokens_rotate(tmp_path: Path, later: Later) -> None:
    (old, old_line), (new, new_line) = make_token("billing"), make_token("billing")
    file = tmp_path / "tokens"
    file.write_text(f"# tokens\n{old_line}\n")
    tokens = Tokens(file)
    assert [_team(tokens, each) for each in (old, new, "")] == ["billing", None, None]
    file.write_text(f"{old_line}\n{new_line}\n")
    later.ahead_s += 10
    assert [_team(tokens, each) for each in (old, new)] == ["billing", "billing"]
    file.write_text(f"{new_line}\n")
    later.ahead_s += 10
    assert [_team(tokens, each) for each in (old, new)] == [None, "billing"]
    file.write_text("not a line\n")
    later.ahead_s += 10
    assert _team(tokens, new) == "billing"
    with pytest.raises(SettingsInvalid, match=r"tokens:1: make the line"):
        Tokens(file)
    assert old not in old_line


def test_a_token_may_end_and_says_so_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    now_ms, day_ms = clock.wall_ms(), 86_400_000
    ends = {"soon": now_ms + 3 * day_ms, "later": now_ms + 30 * day_ms, "never": None}
    made = {team: make_token(team, until_ms=until_ms) for team, until_ms in ends.items()}
    file = tmp_path / "tokens"
    file.write_text("".join(f"{line}\n" for _, line in made.values()))
    tokens = Tokens(file)
    for _ in range(2):
        found = {team: tokens.find(token) for team, (token, _) in made.items()}
    for team, token in found.items():
        assert token is not None
        assert (token.name, token.until_ms) == (team, ends[team])
        assert not token.has_ended(now_ms + 2 * day_ms)
        assert token.has_ended(now_ms + 4 * day_ms) == (team == "soon")
    (line,) = [record.getMessage() for record in caplog.records]
    assert "of soon, which is in use, ends at" in line
    assert not any(token in line for token, _ in made.values())


@pytest.mark.parametrize("until", ["soon", "2026-13-01T00:00:00Z", "2026-12-01T00:00:00", "1767225600000", "2026-12-01Z x"])
def test_an_end_that_is_no_time_is_refused(tmp_path: Path, until: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{make_token('billing')[1]} {until}\n")
    with pytest.raises(SettingsInvalid, match=r"tokens:1: make the line"):
        Tokens(file)


def test_secrets_rotate(tmp_path: Path, later: Later) -> None:
    file = tmp_path / "secrets"
    file.write_text(f"{ONE}\n")
    secrets = ReloadedFile(SETTING, file, SigningKeys)

    def signatures() -> list[str]:
        return sign_body(secrets.current().find_keys("billing"), "1", 1, b"")["webhook-signature"].split(" ")

    (by_one,) = signatures()
    file.write_text(f"{OTHER}\n{ONE}\n")
    later.ahead_s += 10
    by_other, still = signatures()
    assert still == by_one != by_other
    file.unlink()
    later.ahead_s += 10
    assert signatures() == [by_other, by_one]
    with pytest.raises(SettingsInvalid, match=SETTING):
        ReloadedFile(SETTING, file, SigningKeys)
