"""Between instants (seconds since 1970, UTC) and what clocks on a wall show, for IANA time zones.

A wall time is a number too: the seconds since 1970 that a clock would have counted that was never changed. Two things
happen to wall times: they are jumped over where clocks go forward, and come twice where clocks go back. Zones are looked
up by `zoneinfo`: on the machine, or else in the package `tzdata`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from backoff.errors import PolicyInvalid, quote_value

# The last days of the year 9999 are not worth the care that datetime would need there.
END_MS = 253_402_128_000_000
# A capital first: `localtime` and `posixrules` differ from machine to machine, `right/…` counts leap seconds.
_ZONE = re.compile(r"[A-Z][A-Za-z0-9+_/-]{0,59}")
_EPOCH = datetime(1970, 1, 1)


def find_zone(name: object, path: str) -> ZoneInfo:
    """Find the time zone of a name like `Europe/Berlin` or `UTC`; raises PolicyInvalid, at `path`, where none has that name."""
    try:
        if isinstance(name, str) and _ZONE.fullmatch(name):
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, not a zone's file, a folder of zones
        pass
    raise PolicyInvalid(path, f"{quote_value(name)} is not an IANA time zone, like Europe/Berlin or UTC")


def find_offset_s(at_s: int, zone: ZoneInfo) -> int:
    """Compute how many seconds clocks are ahead of UTC at an instant.

    >>> [find_offset_s(1_774_746_000 + late_s, ZoneInfo("Europe/Berlin")) for late_s in (-1, 0)]
    [3600, 7200]
    """
    return _seconds(datetime.fromtimestamp(at_s, zone))


def find_change_s(from_s: int, to_s: int, zone: ZoneInfo) -> int:
    """Find the instant after `from_s`, and not after `to_s`, at which clocks were changed. There must be exactly one."""
    before_s = find_offset_s(from_s, zone)
    return from_s + bisect_left(range(from_s, to_s), True, key=lambda at_s: find_offset_s(at_s, zone) != before_s)


def find_reached_s(at_s: int, zone: ZoneInfo) -> int:
    """Find the latest wall time that clocks showed at an instant or before; it never falls as time goes by."""
    local = datetime.fromtimestamp(at_s, zone)
    if not local.fold:
        return at_s + _seconds(local)
    first_offset_s = _seconds(local.replace(fold=0))
    return find_change_s(at_s + _seconds(local) - first_offset_s, at_s, zone) + first_offset_s - 1


def find_first_s(wall_s: int, zone: ZoneInfo) -> int:
    """Find the first instant at which clocks show a wall time; where they jump over it, the first after the jump.

    >>> half_past_two_s = 1_774_751_400  # on 29 March 2026, when clocks in Berlin go from 02:00 to 03:00
    >>> datetime.fromtimestamp(find_first_s(half_past_two_s, ZoneInfo("Europe/Berlin")), ZoneInfo("Europe/Berlin")).isoformat()
    '2026-03-29T03:00:00+02:00'
    """
    local = (_EPOCH + timedelta(seconds=wall_s)).replace(tzinfo=zone)
    before_s, after_s = _seconds(local), _seconds(local.replace(fold=1))
    if before_s < after_s:
        return find_change_s(wall_s - after_s, wall_s - before_s, zone)
    return wall_s - before_s


def find_repeats_s(at_s: int, zone: ZoneInfo) -> range:
    """Find the instants at which clocks show wall times a second time, where that of `at_s` comes twice; else empty.

    >>> one_hour_before_s = 1_792_886_400  # 25 October 2026, when clocks in Berlin go from 03:00 to 02:00
    >>> list(find_repeats_s(one_hour_before_s, ZoneInfo("Europe/Berlin")))[::1_800] == [1_792_890_000, 1_792_891_800]
    True
    """
    local = datetime.fromtimestamp(at_s, zone)
    first_s, second_s = _seconds(local.replace(fold=0)), _seconds(local.replace(fold=1))
    if first_s <= second_s:
        return range(0)
    wall_s = at_s + _seconds(local)
    begin_s = find_change_s(wall_s - first_s, wall_s - second_s, zone)
    return range(begin_s, begin_s + first_s - second_s)


def _seconds(local: datetime) -> int:
    offset = local.utcoffset() or timedelta()
    return offset.days * 86_400 + offset.seconds
