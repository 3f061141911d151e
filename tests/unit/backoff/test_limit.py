"""Rates as people write them."""

from __future__ import annotations

import pytest

from backoff import PolicyInvalid
from backoff.limit import Limit, rate


@pytest.mark.parametrize(
    ("written", "limit"),
    [
        ("500/s", Limit(500, 1_000)), ("1/m", Limit(1, 60_000)), ("50000/1d", Limit(50_000, 86_400_000)),
        ("20/1m30s", Limit(20, 90_000)), ("1000000/h", Limit(1_000_000, 3_600_000)),
    ],
)  # fmt: skip
def test_a_rate_is_a_number_in_a_time(written: str, limit: Limit) -> None:
    assert rate(written) == limit


@pytest.mark.parametrize(
    "written",
    ["", "5", "/s", "5/", "0/s", "5/0s", "-5/s", "1.5/s", "5 / s", "5/x", "5/s\n", "1" * 10 + "/s", "٣/s", "5/3654d", 5, 0.5,
     True, None, [], "5/" + "s" * 10_000],
)  # fmt: skip
def test_what_is_no_rate_is_refused(written: object) -> None:
    with pytest.raises(PolicyInvalid) as refused:
        rate(written, "rate")
    assert refused.value.path == "rate"
    assert len(str(refused.value)) < 200
