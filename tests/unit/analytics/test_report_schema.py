"""What `retry analytics report --json` prints is what its schema says, and each key is described there."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("altair")

from tests.support.findings import findings
from tests.support.report_schema import faults_of

HOSTILE = "\x1b[2J\u202e</script>"


@pytest.mark.parametrize("names", [{}, {"payments": HOSTILE, "com.acme.pay.CardDeclined": HOSTILE, "topic": HOSTILE}])
def test_findings_are_as_the_schema_says(names: dict[str, str]) -> None:
    assert faults_of(json.loads(json.dumps(findings(names)))) == []


def test_what_is_not_described_and_what_is_missing_is_seen() -> None:
    found: dict[str, Any] = json.loads(json.dumps(findings()))
    found["totals"]["surprise"] = 1
    del found["worth"][0]["hazards"]
    found["comparison"][0]["recovery"] = 69
    faults = "\n".join(faults_of(found))
    assert "surprise" in faults and "'hazards' is a required property" in faults and "69 is greater than the maximum" in faults


def test_the_schema_asks_for_all_that_it_describes_but_what_follows_later() -> None:
    nothing: dict[str, Any] = {name: [] if isinstance(each, list) else each for name, each in findings().items()}
    more = {"before": None, "totals_before": None, "cost": None, "consumer_ms": None}
    assert faults_of(json.loads(json.dumps(nothing | more))) == []
