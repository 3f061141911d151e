"""Draws one original record as a line from its first failure over each retry to now and to what is next.

It is SVG without style or script, with its places in parts of its width, so that it fits any screen. What is drawn stands in the
list below it, under the same numbers, and in one sentence for whoever does not see it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from retry.console.rows import LineageEvent
from retry.console.web.formats import duration

_STOPS_MAX, _FIRST_DRAWN = 9, 2
# Where the first and the last stop are, in percent of the width, and which part of that all spans share alike.
_BEGIN, _END, _SHARED = 4.0, 96.0, 0.55
_SECOND_MS = 1_000
# A span is labelled where it is wide enough for that on a phone.
_LABELLED = 14.0
_SAID = {
    "failed": "it failed", "came back": "it failed again", "sent": "retry {} was sent", "passed": "its consumer group passed it",
    "parked": "it was parked", "discarded": "it was discarded", "action": "somebody acted on it", "waiting": "due for retry {}",
    "now": "now",
}  # fmt: skip
# What a letter does from a stop on; where nothing is said, it goes on with what it did before.
_AFTER = {
    "failed": "waits", "came back": "waits", "waiting": "late", "sent": "runs", "passed": "recovers", "parked": "rests",
    "discarded": "rests",
}  # fmt: skip
_DRAWN = Markup('<svg class="lifeline" role="img" aria-label="{}" width="100%" height="68">{}</svg>')
_SPAN = Markup('<rect class="{does}" x="{x:.2f}%" y="{y}" width="{wide:.2f}%" height="{high}"><title>{title}</title></rect>')
_LABEL = Markup('<text x="{:.2f}%" y="62">{}</text>')
_STOP = Markup('<circle class="{kind}" cx="{x:.2f}%" cy="30" r="10"/><text class="{kind}" x="{x:.2f}%" y="34">{number}</text>')
_NOW = Markup('<line x1="{0:.2f}%" x2="{0:.2f}%" y1="15" y2="45"/><text class="now" x="{0:.2f}%" y="11">now</text>')


class Stop(NamedTuple):
    """One place of the line; `number` is that of its event in the list, None of now."""

    what: str
    at_ms: int
    attempt: int | None = None
    number: int | None = None

    def describe(self) -> str:
        return _SAID[self.what].format("" if self.attempt is None else self.attempt).replace("  ", " ")


def find_last_stop(events: Sequence[LineageEvent], now_ms: int) -> Stop | None:
    """Find the newest event so far of an original record; None where no event has a known time."""
    past = [stop for _, stop in _iterate_stops(events) if stop.at_ms <= now_ms]
    return max(past, key=lambda stop: stop.at_ms, default=None)


def _iterate_stops(events: Sequence[LineageEvent]) -> Iterator[tuple[int, Stop]]:
    """Yield the events that can be drawn, each with its place in the list."""
    for n, each in enumerate(events):
        if each.what in _SAID and each.at_ms is not None:
            yield n, Stop(each.what, each.at_ms, each.attempt)


class Timeline(NamedTuple):
    """The drawing, the number in it of each event by its place in the list, and how many events are not drawn."""

    drawing: Markup
    numbers: dict[int, int]
    left_out: int


def draw_timeline(events: Sequence[LineageEvent], now_ms: int) -> Timeline | None:
    """Draw events, the oldest first; None where there is none whose time is known.

    Of many the first two and the newest are drawn. When a retry is due is drawn while it waits for that alone.
    """
    found = list(_iterate_stops(events))
    kept = found if len(found) < _STOPS_MAX else found[:_FIRST_DRAWN] + found[_FIRST_DRAWN + 1 - _STOPS_MAX :]
    stops = [stop._replace(number=number) for number, (_, stop) in enumerate(kept, 1)]
    if not stops:
        return None
    before = sum(stop.at_ms <= now_ms for stop in stops)
    stops.insert(before, Stop("now", max(now_ms, stops[before - 1].at_ms if before else now_ms)))
    numbers = {n: number for number, (n, _) in enumerate(kept, 1)}
    left_out = len(found) - len(kept)
    parts = [*_draw_spans(stops, folded_at=_FIRST_DRAWN if left_out else None), *_draw_stops(stops)]
    return Timeline(_DRAWN.format(describe_timeline(stops, left_out), Markup("").join(parts)), numbers, left_out)


def place_stops(stops: Sequence[Stop]) -> list[float]:
    """Place each stop, in percent of the width: a span that takes ten times as long is longer by one and the same step.

    >>> [round(each) for each in place_stops([Stop("failed", 0), Stop("sent", 60_000), Stop("now", 3_660_000)])]
    [4, 43, 96]
    """
    steps = [math.log10(1 + (end.at_ms - begin.at_ms) / _SECOND_MS) for begin, end in pairwise(stops)]
    shared, total = _SHARED / max(1, len(steps)), sum(steps)
    places = [_BEGIN]
    for step in steps:
        part = shared + (1 - _SHARED) * step / total if total else 1 / len(steps)
        places.append(places[-1] + (_END - _BEGIN) * part)
    return places


def describe_timeline(stops: Sequence[Stop], left_out: int = 0) -> str:
    """Say in one sentence what is drawn.

    >>> describe_timeline([Stop("failed", 0), Stop("sent", 60_000, 1), Stop("now", 65_000), Stop("waiting", 125_000, 2)])
    'It failed; after 1 min retry 1 was sent; after 5 s now; in 1 min due for retry 2.'
    """
    said, is_future = [stops[0].describe()], stops[0].what == "now"
    for n, (begin, end) in enumerate(pairwise(stops), 1):
        if left_out and n == _FIRST_DRAWN:
            said.append(f"{left_out:,} more that are only listed")
        said.append(f"{'in' if is_future else 'after'} {duration(end.at_ms - begin.at_ms)} {end.describe()}")
        is_future |= end.what == "now"
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


def _draw_spans(stops: Sequence[Stop], folded_at: int | None) -> Iterator[Markup]:
    places, does = place_stops(stops), "waits"
    for n, (begin, end) in enumerate(pairwise(stops), 1):
        does = _AFTER.get(begin.what, does)
        x, wide = places[n - 1], places[n] - places[n - 1]
        took = duration(end.at_ms - begin.at_ms)
        shown = "folded" if n == folded_at else does
        high = 4 if shown in ("runs", "folded") else 10
        title = f"{took} until {end.describe()}"
        yield _SPAN.format(does=shown, x=x, y=30 - high // 2, wide=wide, high=high, title=title)
        if wide >= _LABELLED:
            yield _LABEL.format(x + wide / 2, " ".join(took.split()[:2]))


def _draw_stops(stops: Sequence[Stop]) -> Iterator[Markup]:
    for stop, x in zip(stops, place_stops(stops), strict=True):
        if stop.number is None:
            yield _NOW.format(x)
        else:
            yield _STOP.format(kind=stop.what.replace(" ", "-"), x=x, number=stop.number)
