"""Which lanes have something due is known without a look at the others, and is what a look at all of them would tell."""

from __future__ import annotations

import random

from retry.delay_queue.entry_keys import LANE_BYTES, build_due_bound, build_key, build_key_stem, build_lane_end, due_at_ms, lane
from retry.delay_queue.table.watermarks import Watermarks

STEM = build_key_stem("letters", 0)
LANES = [lane("team", f"topic-{n}", "target") for n in range(20)]


class Counted(dict[bytes, object]):
    """Says how often somebody asked for a lane."""

    asked = 0

    def __getitem__(self, lane: bytes) -> object:
        self.asked += 1
        return super().__getitem__(lane)


def test_lanes_that_are_not_due_are_not_looked_at() -> None:
    lanes, counted = Watermarks(), Counted()
    lanes._lanes = counted  # type: ignore[assignment]
    many = [lane("team", f"topic-{n}", "target") for n in range(1_000)]
    lanes.note_put({of: build_key(10_000 + n, STEM, n, of) for n, of in enumerate(many)})
    counted.asked = 0
    assert lanes.find_due_lanes(9_999) == []
    assert counted.asked == 0
    assert lanes.find_due_lanes(10_002) == many[:3]
    assert counted.asked == 3


def test_random_histories_tell_the_same_lanes_as_a_look_at_all() -> None:
    for seed in range(300):
        draw, lanes = random.Random(seed), Watermarks()
        rows: dict[bytes, set[bytes]] = {of: set() for of in LANES}
        now_ms = 0
        for offset in range(120):
            now_ms += draw.randrange(20)
            if draw.random() < 0.6:
                of = draw.choice(LANES)
                put = build_key(now_ms + draw.randrange(-50, 400), STEM, offset, of)
                rows[of].add(put)
                lanes.note_put({of: put})
                continue
            found = lanes.find_due_lanes(now_ms)
            waiting = lanes.list_waiting()
            low = {of: lanes.low(of) for of in waiting}
            assert found == sorted((of for of in waiting if due_at_ms(low[of]) <= now_ms), key=lambda of: low[of][LANE_BYTES:])
            assert {of for of in LANES if rows[of] and due_at_ms(min(rows[of])) <= now_ms} <= set(found)
            for of in found:
                _deliver(lanes, rows[of], of, now_ms, draw.randrange(1, 4))


def _deliver(lanes: Watermarks, rows: set[bytes], of: bytes, now_ms: int, at_most: int) -> None:
    """Deliver as a table does: scan, and forget what was found."""
    left = sorted(rows)
    found = [row for row in left if row < build_due_bound(now_ms + 1, of)][:at_most]
    following = left[len(found)] if len(left) > len(found) else build_lane_end(of)
    beyond = following if following >= build_due_bound(now_ms + 1, of) else None
    lanes.note_scan(of, beyond or (found[-1] + b"\0" if found else lanes.low(of)), beyond if not found else None)
    if found:
        rows.difference_update(found)
        lanes.note_delivered_rows(of, len(found))
