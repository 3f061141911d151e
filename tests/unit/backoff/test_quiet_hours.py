"""Quiet hours, alone and several together, by what clocks on the wall show."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff import PolicyInvalid
from backoff.calendar import Calendar, QuietHours
from backoff.time_zone import END_MS

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
EVERY_DAY = frozenset(range(7))


def ms(text):
    return int(datetime.fromisoformat(text).timestamp() * 1_000)


def quiet(start, end, zone, *days):
    return QuietHours.parse({"from": start, "to": end, "zone": zone} | ({"days": list(days)} if days else {}))


def move_time(start, *periods):
    """Return where a time is moved to, as a local time of the first period."""
    at_ms = Calendar(periods)(ms(start))
    return datetime.fromtimestamp(at_ms / 1_000, periods[0].zone).isoformat(" ")


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("2026-05-01T21:59:59.999+02:00", "2026-05-01 21:59:59.999000+02:00"),
        ("2026-05-01T22:00+02:00", "2026-05-02 06:00:00+02:00"),
        ("2026-05-02T05:59:59.999+02:00", "2026-05-02 06:00:00+02:00"),
        ("2026-05-02T06:00+02:00", "2026-05-02 06:00:00+02:00"),
        ("2026-05-02T00:00+02:00", "2026-05-02 06:00:00+02:00"),
    ],
)
def test_a_night_lasts_over_midnight(start, expected):
    assert move_time(start, quiet("22:00", "06:00", BERLIN)) == expected


def test_the_day_is_the_one_on_which_the_period_begins():
    friday_night = quiet("22:00", "06:00", BERLIN, "fri")
    assert move_time("2026-05-01T23:00+02:00", friday_night) == "2026-05-02 06:00:00+02:00"
    assert move_time("2026-05-02T01:00+02:00", friday_night) == "2026-05-02 06:00:00+02:00"
    assert move_time("2026-05-02T23:00+02:00", friday_night) == "2026-05-02 23:00:00+02:00"
    assert move_time("2026-05-01T01:00+02:00", friday_night) == "2026-05-01 01:00:00+02:00"


def test_the_same_time_twice_is_a_whole_day():
    weekend = quiet("00:00", "00:00", BERLIN, "Sat", "SUN")
    assert move_time("2026-05-02T00:00+02:00", weekend) == "2026-05-04 00:00:00+02:00"
    assert move_time("2026-05-03T23:59+02:00", weekend) == "2026-05-04 00:00:00+02:00"
    assert move_time("2026-05-01T23:59+02:00", weekend) == "2026-05-01 23:59:00+02:00"


def test_periods_that_touch_or_overlap_are_waited_out_together():
    periods = quiet("22:00", "06:00", BERLIN), quiet("06:00", "07:30", BERLIN), quiet("07:00", "08:00", BERLIN)
    assert move_time("2026-05-01T22:30+02:00", *periods) == "2026-05-02 08:00:00+02:00"
    assert move_time("2026-05-01T22:30+02:00", *reversed(periods)) == "2026-05-02 08:00:00+02:00"


def test_periods_of_two_zones_are_waited_out_together():
    assert move_time("2026-05-01T22:30+02:00", quiet("22:00", "06:00", BERLIN), quiet("22:00", "06:00", NEW_YORK)) == (
        "2026-05-02 12:00:00+02:00"
    )


@pytest.mark.parametrize(
    ("zone", "start", "end", "at", "expected"),
    [
        # A night in which clocks are changed ends when they show its end.
        (BERLIN, "22:00", "06:00", "2026-03-28T23:00+01:00", "2026-03-29 06:00:00+02:00"),
        (BERLIN, "22:00", "06:00", "2026-10-24T23:00+02:00", "2026-10-25 06:00:00+01:00"),
        (NEW_YORK, "22:00", "06:00", "2026-03-07T23:00-05:00", "2026-03-08 06:00:00-04:00"),
        # Its end is jumped over: open at the first instant after the jump.
        (BERLIN, "22:00", "02:30", "2026-03-29T01:00+01:00", "2026-03-29 03:00:00+02:00"),
        (LORD_HOWE, "22:00", "02:15", "2026-10-04T01:00+10:30", "2026-10-04 02:30:00+11:00"),
        # All of it is jumped over.
        (BERLIN, "02:00", "03:00", "2026-03-29T01:59+01:00", "2026-03-29 01:59:00+01:00"),
        (BERLIN, "02:00", "03:00", "2026-03-29T03:00+02:00", "2026-03-29 03:00:00+02:00"),
        # Clocks show it twice: it is quiet twice.
        (BERLIN, "01:00", "02:30", "2026-10-25T02:10+02:00", "2026-10-25 02:30:00+02:00"),
        (BERLIN, "01:00", "02:30", "2026-10-25T02:10+01:00", "2026-10-25 02:30:00+01:00"),
        (BERLIN, "02:30", "03:00", "2026-10-25T02:40+02:00", "2026-10-25 02:00:00+01:00"),
        (BERLIN, "02:30", "03:00", "2026-10-25T02:40+01:00", "2026-10-25 03:00:00+01:00"),
        (BERLIN, "02:00", "03:00", "2026-10-25T02:40+02:00", "2026-10-25 03:00:00+01:00"),
        (LORD_HOWE, "01:45", "02:00", "2026-04-05T01:50+11:00", "2026-04-05 01:30:00+10:30"),
        (LORD_HOWE, "22:00", "06:00", "2026-04-04T23:00+11:00", "2026-04-05 06:00:00+10:30"),
        # A day that never was.
        ("Pacific/Apia", "00:00", "00:00", "2011-12-29T12:00-10:00", "2011-12-31 00:00:00+14:00"),
    ],
)
def test_changes_of_the_clocks(zone, start, end, at, expected):
    days = ("thu",) if zone == "Pacific/Apia" else ()
    assert move_time(at, quiet(start, end, zone, *days)) == expected


nights = st.builds(
    QuietHours,
    st.integers(0, 1_439),
    st.integers(0, 1_439),
    st.sampled_from([ZoneInfo(name) for name in ("UTC", BERLIN, NEW_YORK, LORD_HOWE, "Asia/Kolkata", "Pacific/Apia")]),
    st.frozensets(st.integers(0, 6), min_size=1),
)
calendars = st.lists(nights, min_size=1, max_size=4).map(lambda periods: Calendar(tuple(periods))).filter(Calendar.ever)
# From 2022 on these zones keep the rules that they have now: a calendar that is ever open is so in each of these years.
near_changes_ms = st.sampled_from(
    [ms(f"{day}T00:00+00:00") for day in ("2026-03-29", "2026-10-25", "2026-04-05", "2026-10-04", "2026-11-01")]
)
moments_ms = st.builds(int.__add__, near_changes_ms, st.integers(-2 * 86_400_000, 2 * 86_400_000)) | st.integers(
    ms("2022-01-01T00:00+00:00"), END_MS - 400 * 86_400_000
)


def is_quiet(period, at_ms):
    """Whether the wall time lies in a period that began today or yesterday, by the words of the attributes."""
    local = datetime.fromtimestamp(at_ms // 1_000, period.zone)
    minute = 60 * local.hour + local.minute
    today, yesterday = local.weekday() in period.days, (local.weekday() - 1) % 7 in period.days
    if period.from_minute < period.to_minute:
        return today and period.from_minute <= minute < period.to_minute
    return (today and minute >= period.from_minute) or (yesterday and minute < period.to_minute)


@given(calendars, moments_ms)
def test_where_a_moment_is_moved_to_is_open_and_all_before_is_quiet(calendar, moment_ms):
    open_ms = calendar(moment_ms)
    assert open_ms >= moment_ms
    assert not any(is_quiet(period, open_ms) for period in calendar.quiet_hours)
    between = [moment_ms, open_ms - 1, *range(moment_ms, open_ms, 1_800_000)] if open_ms > moment_ms else []
    assert all(any(is_quiet(period, at_ms) for period in calendar.quiet_hours) for at_ms in between)


@given(calendars, moments_ms, st.integers(0, 10**9))
def test_it_stays_there_and_a_later_moment_is_never_moved_to_an_earlier_one(calendar, moment_ms, later_ms):
    open_ms = calendar(moment_ms)
    assert calendar(open_ms) == open_ms <= calendar(moment_ms + later_ms)


@pytest.mark.parametrize("moment_ms", [-(10**40), -1, END_MS, 2**63, 10**40])
def test_what_no_calendar_covers_comes_back_as_it_is(moment_ms):
    night = quiet("00:00", "23:59", BERLIN)
    assert night.next_at_or_after(moment_ms) == Calendar((night,))(moment_ms) == moment_ms


def test_both_ends_of_time():
    night = Calendar((quiet("00:00", "23:00", "Pacific/Kiritimati"), quiet("00:00", "23:00", "Etc/GMT+12")))
    assert night(0) >= 0
    assert night(END_MS - 1) >= END_MS - 1


GOOD = {"from": "22:00", "to": "06:00", "zone": "UTC"}


@pytest.mark.parametrize(
    ("mapping", "path", "reason"),
    [
        ({}, "from", "is missing"),
        ({"from": "22:00"}, "to", "is missing"),
        ({"from": "22:00", "to": "06:00"}, "zone", "is missing"),
        (GOOD | {"until": "07:00"}, "until", "have from, to, zone, days"),
        *((GOOD | {"from": bad}, "from", "in quotes, like '22:00'") for bad in
          ("24:00", "7:00", "22", "22:60", "22:00:00", " 22:00", "-1:00", "٢٢:٠٠", 1320, 22.0, None, True)),
        (GOOD | {"to": 1320}, "to", "1320 is not a time of day"),
        (GOOD | {"zone": "Berlin"}, "zone", "is not an IANA time zone"),
        (GOOD | {"days": []}, "days", "not a list of days"),
        (GOOD | {"days": "sat"}, "days", "not a list of days"),
        (GOOD | {"days": None}, "days", "not a list of days"),
        (GOOD | {"days": ["mon"] * 8}, "days", "not a list of days"),
        (GOOD | {"days": ["mon", "saturday"]}, "days[1]", "not one of mon, tue"),
        (GOOD | {"days": [True]}, "days[0]", "not one of mon, tue"),
    ],
)  # fmt: skip
def test_a_period_is_refused_with_its_place(mapping, path, reason):
    with pytest.raises(PolicyInvalid) as refused:
        QuietHours.parse(mapping)
    assert refused.value.path == path
    assert reason in refused.value.reason


def test_no_days_are_all_days():
    assert QuietHours.parse(GOOD) == QuietHours(1_320, 360, ZoneInfo("UTC"), EVERY_DAY)
    assert QuietHours.parse(GOOD).describe_rule() == "quiet 22:00–06:00 UTC"
