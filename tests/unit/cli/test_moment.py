"""Moments as options take them: absolute, or counted from now in the direction that the option means."""

from __future__ import annotations

import click
import pytest

from retry import clock
from retry.cli.options import Moment

NOW_MS = 1_780_272_000_000


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "wall_ms", lambda: NOW_MS)


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [("0", 0), ("1780271000000", 1_780_271_000_000), ("2026-06-01T00:00:00", NOW_MS), ("2026-06-01T02:00:00+02:00", NOW_MS)],
)
@pytest.mark.parametrize("ago", [True, False])
def test_a_moment_is_the_same_whichever_way(text: str, moment_ms: int, ago: bool) -> None:
    assert Moment(ago=ago).convert(text, None, None) == moment_ms


def test_a_duration_is_counted_from_now_on_or_back() -> None:
    assert Moment().convert("10m", None, None) == NOW_MS + 600_000
    assert Moment(ago=True).convert("7d", None, None) == NOW_MS - 7 * 86_400_000


def test_what_is_no_moment_is_refused_with_what_is_one() -> None:
    with pytest.raises(click.BadParameter, match="give 2026"):
        Moment().convert("soon", None, None)
