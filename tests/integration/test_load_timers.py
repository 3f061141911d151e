"""The load test of `make load`, on few timers."""

from __future__ import annotations

import pytest

from tests.bench.timers import load
from tests.conftest import Deploy

pytestmark = pytest.mark.check


def test_2_8_the_load_test_makes_and_fires_every_timer(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    load(deploy({"orders": 1}, shards=2, environ={"RETRY_WEBHOOK_ALLOW": "127.0.0.0/8"}), 40, 2)
    told = capsys.readouterr().out
    assert "40 of 40 were called, 0 more than once" in told
    assert [line.split()[0] for line in told.splitlines() if "timers/s" in line] == ["made:", "fired:"]
