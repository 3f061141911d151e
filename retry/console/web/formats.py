"""How pages write numbers, times and what records said."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from markupsafe import Markup, escape

from retry import printable

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
_DAY_MS = 86_400_000
_FULL = "%Y-%m-%d %H:%M:%S UTC"
_SHOWN_MAX = 300
# As `retry.clock.iso` writes it.
_ISO = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{3}\+00:00)")
MASKED = "masked for you"


def format_text(text: str | bytes | None, most: int = _SHOWN_MAX) -> str:
    """Format text of a record in one line of about `most` characters, escaped where it is not printable; a dash for None."""
    if text is None:
        return "–"
    return printable.escape_unprintable(text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text, most)


def hide_text(text: str | Markup, is_hidden: bool) -> str:
    """Return a text, or where `is_hidden` the words that say that it is masked."""
    return MASKED if is_hidden else text


def break_after_dots(text: str) -> Markup:
    """Write a name as HTML that may break after its dots, where its column is narrow.

    >>> break_after_dots("a.b<c>")
    Markup('a.<wbr>b&lt;c&gt;')
    """
    return Markup(".<wbr>").join(text.split("."))


def format_lines(text: str) -> str:
    """Format the lines of a text that somebody wrote: what is not printable is escaped, a line may end as Windows ends it."""
    return printable.escape_lines(text.replace("\r\n", "\n"))


def format_count(value: int | None, *, capped: bool = False) -> str:
    """Format a count; add `+` where there are more, and write `unknown` for None."""
    return "unknown" if value is None else f"{value:,}{'+' if capped else ''}"


def format_letters(count: int) -> str:
    """Write a number of letters in words.

    >>> format_letters(1), format_letters(1814)
    ('1 letter', '1,814 letters')
    """
    return f"{count:,} letter{'' if count == 1 else 's'}"


def duration(ms: int) -> str:
    """Format a duration in its largest unit and the next: `2 h 5 min`.

    >>> duration(7_500_000), duration(400), duration(90_061_000), duration(0)
    ('2 h 5 min', '0.4 s', '1 d 1 h', '0 s')
    """
    if 0 < ms < 1_000:
        return f"{ms / 1_000:.1f} s"
    for n, (unit_ms, unit) in enumerate(_UNITS):
        if ms >= unit_ms:
            next_ms, next_unit = _UNITS[min(n + 1, len(_UNITS) - 1)]
            rest = ms % unit_ms // next_ms
            return f"{ms // unit_ms} {unit}" + (f" {rest} {next_unit}" if rest else "")
    return "0 s"


def ago(at_ms: int | None, now_ms: int, *, brief: bool = False) -> str:
    """Say how far a moment is from now: `3 min ago`, `in 2 h 5 min`; where `brief`, in its largest unit alone.

    >>> ago(0, 7_500_000), ago(0, 7_500_000, brief=True), ago(7_500_000, 0)
    ('2 h 5 min ago', '2 h ago', 'in 2 h 5 min')
    """
    if at_ms is None:
        return "unknown"
    apart = duration(abs(now_ms - at_ms) // 1_000 * 1_000)
    apart = " ".join(apart.split()[:2]) if brief else apart
    if apart == "0 s":
        return "now"
    return f"{apart} ago" if at_ms < now_ms else f"in {apart}"


# A moment on a page is always a `time` with its `datetime`, in UTC. The script writes it in the reader's zone and UTC beside it,
# in the same form again: `full`, `brief`, `minute`, or `ago`; `data-age` says that it has how long ago that is.

def moment(at: int | str | None, now_ms: int | None = None) -> Markup:
    """Write a moment, given in ms or as ISO 8601, as HTML in UTC; with `now_ms`, add how far it is from now."""
    return _format_time(_to_ms(at), "full", _FULL, now_ms)


def mark_moments(text: str) -> Markup:
    """Write a sentence as HTML in which each ISO 8601 moment in UTC looks as `moment` writes it.

    >>> mark_moments("<b> at 2026-09-21T14:13:20.000+00:00.").striptags()
    '<b> at 2026-09-21 14:13:20 UTC.'
    >>> mark_moments("on 2026-02-31T14:13:20.000+00:00")
    Markup('on 2026-02-31T14:13:20.000+00:00')
    """
    parts = _ISO.split(text)
    return Markup("").join(_mark_moment(part) if n % 2 else escape(part) for n, part in enumerate(parts))


def _mark_moment(text: str) -> Markup:
    try:
        return moment(text)
    except (ValueError, OverflowError):
        return escape(text)


def brief(at: int | str | None, now_ms: int) -> Markup:
    """Format a moment for a table column headed UTC: only the time of day for today, else day, month and minutes.

    >>> brief(1_790_000_000_000, 1_790_000_060_000).striptags()
    '14:13:20 (1 min ago)'
    >>> brief(1_790_000_000_000, 1_790_100_000_000).striptags()
    '21 Sep 14:13 (1 d 3 h ago)'
    """
    at_ms = _to_ms(at)
    is_today = at_ms is not None and at_ms // _DAY_MS == now_ms // _DAY_MS
    return _format_time(at_ms, "brief", "%H:%M:%S" if is_today else "%-d %b %H:%M", now_ms)


def format_minute(at_ms: int) -> Markup:
    """Format a moment in UTC as day, month and minutes, for a narrow column that is headed UTC."""
    return _format_time(at_ms, "minute", "%-d %b %H:%M", None)


def format_age(at: int | str | None, now_ms: int, *, brief: bool = False) -> Markup:
    """Write how long ago a moment was, as HTML; the moment itself shows under the mouse pointer; see `ago`.

    >>> print(format_age(1_790_000_000_000, 1_790_000_060_000))
    <time datetime="2026-09-21T14:13:20.000Z" data-as="ago" title="2026-09-21 14:13:20 UTC">1 min ago</time>
    """
    at_ms = _to_ms(at)
    when = None if at_ms is None else _parse_ms(at_ms)
    if at_ms is None or when is None:
        return escape("unknown" if at_ms is None else f"{at_ms} ms")
    form = Markup('<time datetime="{}" data-as="{}" title="{}">{}</time>')
    return form.format(_format_iso(when), "ago-brief" if brief else "ago", f"{when:{_FULL}}", ago(at_ms, now_ms, brief=brief))


def _format_time(at_ms: int | None, name: str, form: str, now_ms: int | None) -> Markup:
    if at_ms is None:
        return Markup("unknown")
    if (when := _parse_ms(at_ms)) is None:
        return escape(f"{at_ms} ms")
    if now_ms is None:
        return Markup('<time datetime="{}" data-as="{}">{}</time>').format(_format_iso(when), name, f"{when:{form}}")
    with_age = Markup('<time datetime="{}" data-as="{}" data-age>{} <small>({})</small></time>')
    return with_age.format(_format_iso(when), name, f"{when:{form}}", ago(at_ms, now_ms))


def _to_ms(at: int | str | None) -> int | None:
    return round(datetime.fromisoformat(at).timestamp() * 1_000) if isinstance(at, str) else at


def _parse_ms(at_ms: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(at_ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _format_iso(when: datetime) -> str:
    return f"{when.isoformat(timespec='milliseconds')[:23]}Z"


def format_for_picker(text: str) -> str:
    """Format a moment for an input field in which one is picked; a text that is no moment is returned as it is.

    >>> format_for_picker("1790000000"), format_for_picker("2026-09-21T14:13:20+02:00"), format_for_picker("2026-09-21T14:13")
    ('2026-09-21T14:13:20', '2026-09-21T12:13:20', '2026-09-21T14:13:00')
    >>> format_for_picker("soon"), format_for_picker("")
    ('soon', '')
    """
    try:
        at = datetime.fromtimestamp(int(text), UTC) if text.isdigit() else datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        return text
    return f"{at.astimezone(UTC) if at.tzinfo else at:%Y-%m-%dT%H:%M:%S}"


def percent(part: int | None, whole: int | None) -> str:
    """Format a share in percent; a dash where the share is not known.

    >>> percent(1, 3), percent(0, 0)
    ('33 %', '–')
    """
    return "–" if part is None or not whole else f"{100 * part / whole:.0f} %"


FILTERS = {
    "dotted": break_after_dots, "visible": format_text, "visible_lines": format_lines, "number": format_count,
    "duration": duration, "ago": format_age, "format_letters": format_letters,
    "moment": moment, "brief": brief, "minute": format_minute, "percent": percent,
    "picked": format_for_picker, "mark_moments": mark_moments, "unless": hide_text,
}  # fmt: skip


# Small pictures of numbers, made here as SVG without style or script; `charts.html` has the table of each.

_BAR, _GAP, _HIGH = 4, 1, 24
_HOUR_MS = 3_600_000


def bars(counts: Sequence[int], what: str) -> Markup:
    """Draw bars for the hours of a day, the oldest first; a screen reader reads `what`, the sum and the highest count."""
    most = max(counts, default=0)
    told = f"{what}: {sum(counts):,} in {len(counts)} hours, at most {most:,} in one"
    drawn = [
        Markup('<rect x="{}" y="{}" width="{}" height="{}"/>').format(n * (_BAR + _GAP), _HIGH - high, _BAR, high)
        for n, high in enumerate(_height(count, most) for count in counts)
        if high
    ]
    wide = max(1, len(counts) * (_BAR + _GAP) - _GAP)
    picture = Markup('<svg class="trend" role="img" aria-label="{}" viewBox="0 0 {} {}" width="{}" height="{}">{}</svg>')
    return picture.format(told, wide, _HIGH, wide, _HIGH, Markup("").join(drawn))


def _height(count: int, most: int) -> int:
    # What happened at all is seen.
    return max(2, round(_HIGH * count / most)) if count else 0


def hours(counts: Sequence[int], now_ms: int) -> list[tuple[int, int]]:
    """Pair each hourly count with the time in ms at which its hour began; the last hour is not over yet.

    >>> hours([3, 5], 7_200_001)
    [(3600000, 3), (7200000, 5)]
    """
    first = now_ms // _HOUR_MS - len(counts) + 1
    return [((first + n) * _HOUR_MS, count) for n, count in enumerate(counts)]
