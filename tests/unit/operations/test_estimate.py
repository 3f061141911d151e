"""How long an action takes at least: by its due times, rate limits and steps, and what of it is slowest."""

from __future__ import annotations

from typing import Any

import pytest

from retry.delay_queue.action_records import Action
from retry.delay_queue.ramp_records import Ramp
from retry.operations.act.choose import Chosen
from retry.operations.act.preview import Estimate, Preview, estimate
from retry.operations.act.request import DueTimes, renew_action
from tests.support.plans import registry_of

NOW_MS = 1_790_000_000_000
REGISTRY = registry_of("""
teams:
  shop:
    rate: 10/s
    budget: 1000/h
    topics: [{dead_letters: orders.DLT, retry_to: orders.retry}]
  bank: {topics: [{dead_letters: loans.DLT, retry_to: loans.retry}]}
targets: {loans.retry: {rate: 5/s}}
""")


def preview_of(count: int, team: str = "shop", target: str = "orders.retry", kind: str = "retry", **more: Any) -> Preview:
    chosen = Chosen(NOW_MS)
    chosen.keys = [[b"k"] * count, []]
    chosen.groups["team"][team], chosen.targets[target] = count, count
    action = Action(kind, "ann", 0, [], 0, target=more.get("to"), ramp=more.get("ramp"))
    return Preview(renew_action(action, more.get("due", DueTimes())), chosen, NOW_MS, [], more.get("silent", ()))


@pytest.mark.parametrize(
    ("preview", "told"),
    [
        (preview_of(10), Estimate(36_000, "team shop may have 1000/h")),
        (preview_of(100, "bank", "loans.retry"), Estimate(20_000, "target loans.retry may have 5/s")),
        (preview_of(100, "bank", "elsewhere", "redirect", to="loans.retry"), Estimate(20_000, "target loans.retry may have 5/s")),
        # Nothing is sent of what is parked.
        (preview_of(6_000, kind="park"), Estimate(1_000, "workers act on some 3,000 letters/s in each shard")),
        (preview_of(6_000, "x", "y", due=DueTimes(at_ms=NOW_MS + 60_000)), Estimate(61_000, "they are due at a later time")),
        (preview_of(6_000, "x", "y", due=DueTimes(spread_ms=60_000)), Estimate(61_000, "they are spread or postponed")),
        (
            preview_of(3, "x", "y", ramp=Ramp(0.9, [1, 2], 10_000, 120_000)),
            Estimate(20_000, "2 steps are judged after 10 s each"),
        ),
        (
            preview_of(3, "x", "y", ramp=Ramp(0.9, [1, 2], 10_000, 120_000), silent=["y"]),
            Estimate(240_000, "2 steps are judged after 120 s each"),
        ),
        (preview_of(0, "x", "y"), Estimate(0, "workers act on some 3,000 letters/s in each shard")),
    ],
)  # fmt: skip
def test_it_takes_at_least(preview: Preview, told: Estimate) -> None:
    assert estimate(preview, REGISTRY, 2) == told
