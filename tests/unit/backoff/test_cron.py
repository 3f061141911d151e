"""Cron expressions: which minutes they name, on every kind of day and around changes of the clocks."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backoff import PolicyInvalid, cron
from backoff.cron import Cron
from backoff.time_zone import END_MS, find_offset_s

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
EXPRESSIONS = [
    "* * * * *", "*/15 * * * *", "30 2 * * *", "0,59 1-3 * * *", "0 0 29 2 *", "5 4 31 * *", "0 12 13 * FRI", "0 0 */2 * MON",
    "0 0 * * 7", "15 2 * 3,10 SUN", "@hourly", "@daily", "@weekly", "@monthly", "@yearly",
]  # fmt: skip
ZONES = ["UTC", BERLIN, NEW_YORK, LORD_HOWE, "Asia/Kolkata", "Pacific/Apia", "America/St_Johns", "Africa/Casablanca"]

crons = st.builds(Cron.parse, st.sampled_from(EXPRESSIONS), st.sampled_from(ZONES))
# Since 1972: until then one zone was half a minute off.
any_ms = st.integers(63_072_000_000, END_MS - 1)


def ms(text):
    return int(datetime.fromisoformat(text).timestamp() * 1_000)


changes_ms = st.sampled_from(
    [ms(f"{day}T00:00+00:00") for day in ("2026-03-29", "2026-10-25", "2026-04-05", "2026-10-04", "2026-11-01", "2011-12-30")]
)
moments_ms = any_ms | st.builds(int.__add__, changes_ms, st.integers(-86_400_000, 86_400_000))


def list_following(expression, zone, start, count):
    """The next `count` matches from a time on, as local times with their offset."""
    at_ms, found = ms(start), []
    for _ in range(count):
        at_ms = Cron.parse(expression, zone).next_at_or_after(at_ms)
        found.append(datetime.fromtimestamp(at_ms / 1_000, ZoneInfo(zone)).isoformat(" ", "minutes"))
        at_ms += 1
    return found


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        ("*/15 * * * *", "2026-05-01T10:15:00", ["2026-05-01 10:15", "2026-05-01 10:30"]),
        ("*/15 * * * *", "2026-05-01T10:15:00.001", ["2026-05-01 10:30", "2026-05-01 10:45"]),
        ("0 9-17/4 * * *", "2026-05-01T17:00:01", ["2026-05-02 09:00", "2026-05-02 13:00"]),
        ("59 23 31 12 *", "2026-12-31T23:59:00", ["2026-12-31 23:59", "2027-12-31 23:59"]),
        ("0 0 31 * *", "2026-01-31T00:01:00", ["2026-03-31 00:00", "2026-05-31 00:00"]),
        ("0 0 29 feb *", "2096-03-01T00:00:00", ["2104-02-29 00:00", "2108-02-29 00:00"]),
        ("0 0 29 2 */7", "2032-03-01T00:00:00", ["2060-02-29 00:00", "2088-02-29 00:00"]),
        ("0 0 29 2 */7", "2088-03-01T00:00:00", ["2128-02-29 00:00"]),
        ("0 12 * * 7", "2026-05-01T00:00:00", ["2026-05-03 12:00", "2026-05-10 12:00"]),
        ("0 12 * * FRI-SUN", "2026-05-04T00:00:00", ["2026-05-08 12:00", "2026-05-09 12:00", "2026-05-10 12:00"]),
        ("0 12 * * 5-7", "2026-05-04T00:00:00", ["2026-05-08 12:00", "2026-05-09 12:00", "2026-05-10 12:00"]),
        # Both kinds of day restricted: either is enough. `*/7` counts as not restricted.
        ("0 0 13 * FRI", "2026-02-10T00:00:00", ["2026-02-13 00:00", "2026-02-20 00:00", "2026-02-27 00:00"]),
        ("0 0 12 * FRI", "2026-02-10T00:00:00", ["2026-02-12 00:00", "2026-02-13 00:00"]),
        ("0 0 30 2 MON", "2026-02-10T00:00:00", ["2026-02-16 00:00", "2026-02-23 00:00", "2027-02-01 00:00"]),
        ("0 0 */7 * MON", "2026-02-10T00:00:00", ["2026-06-01 00:00", "2026-06-08 00:00"]),
        ("@hourly", "2026-05-01T10:00:01", ["2026-05-01 11:00", "2026-05-01 12:00"]),
        ("@daily", "2026-05-01T10:00:01", ["2026-05-02 00:00", "2026-05-03 00:00"]),
        ("@weekly", "2026-05-01T10:00:01", ["2026-05-03 00:00", "2026-05-10 00:00"]),
        ("@monthly", "2026-05-01T10:00:01", ["2026-06-01 00:00", "2026-07-01 00:00"]),
        (" @Yearly ", "2026-05-01T10:00:01", ["2027-01-01 00:00", "2028-01-01 00:00"]),
    ],
)
def test_the_next_matches(expression, start, expected):
    found = list_following(expression, "UTC", f"{start}+00:00", len(expected))
    assert found == [f"{each}+00:00" for each in expected]


@pytest.mark.parametrize(
    ("zone", "expression", "start", "expected"),
    [
        # Jumped over: the first instant after the jump, and once only.
        (BERLIN, "30 2 * * *", "2026-03-28T03:00+01:00", ["2026-03-29 03:00+02:00", "2026-03-30 02:30+02:00"]),
        (BERLIN, "*/30 1-3 * * *", "2026-03-29T01:15+01:00", ["2026-03-29 01:30+01:00", "2026-03-29 03:00+02:00"]),
        (BERLIN, "30 2 * * *", "2026-03-29T03:00+02:00", ["2026-03-29 03:00+02:00"]),
        (NEW_YORK, "30 2 * * *", "2026-03-07T03:00-05:00", ["2026-03-08 03:00-04:00", "2026-03-09 02:30-04:00"]),
        (LORD_HOWE, "15 2 * * *", "2026-10-03T03:00+10:30", ["2026-10-04 02:30+11:00", "2026-10-05 02:15+11:00"]),
        ("Pacific/Apia", "0 12 * * *", "2011-12-29T13:00-10:00", ["2011-12-31 00:00+14:00", "2011-12-31 12:00+14:00"]),
        # Twice: at a fixed time the first time only.
        (BERLIN, "30 2 * * *", "2026-10-25T00:00+02:00", ["2026-10-25 02:30+02:00", "2026-10-26 02:30+01:00"]),
        (BERLIN, "0,30 1-3 * * *", "2026-10-25T02:30+02:00", ["2026-10-25 02:30+02:00", "2026-10-25 03:00+01:00"]),
        (BERLIN, "0 3 * * *", "2026-10-25T02:30+01:00", ["2026-10-25 03:00+01:00"]),
        (BERLIN, "@daily", "2026-10-25T00:00:01+02:00", ["2026-10-26 00:00+01:00"]),
        (NEW_YORK, "30 1 * * *", "2026-11-01T00:00-04:00", ["2026-11-01 01:30-04:00", "2026-11-02 01:30-05:00"]),
        # With a wildcard for minute or hour each time that clocks show it.
        (BERLIN, "30 * * * *", "2026-10-25T02:00+02:00",
         ["2026-10-25 02:30+02:00", "2026-10-25 02:30+01:00", "2026-10-25 03:30+01:00"]),
        (BERLIN, "@hourly", "2026-10-25T01:30+02:00",
         ["2026-10-25 02:00+02:00", "2026-10-25 02:00+01:00", "2026-10-25 03:00+01:00"]),
        (BERLIN, "* * * * *", "2026-10-25T02:59+02:00",
         ["2026-10-25 02:59+02:00", "2026-10-25 02:00+01:00", "2026-10-25 02:01+01:00"]),
        (BERLIN, "*/15 * * * *", "2026-10-25T02:10+01:00", ["2026-10-25 02:15+01:00", "2026-10-25 02:30+01:00"]),
        (BERLIN, "*/30 2 * * *", "2026-10-25T02:20+02:00",
         ["2026-10-25 02:30+02:00", "2026-10-25 02:00+01:00", "2026-10-25 02:30+01:00", "2026-10-26 02:00+01:00"]),
        (BERLIN, "10 * 26 * *", "2026-10-25T02:20+02:00", ["2026-10-26 00:10+01:00"]),
        (LORD_HOWE, "*/15 * * * *", "2026-04-05T01:45+11:00",
         ["2026-04-05 01:45+11:00", "2026-04-05 01:30+10:30", "2026-04-05 01:45+10:30", "2026-04-05 02:00+10:30"]),
    ],
)
def test_changes_of_the_clocks(zone, expression, start, expected):
    assert list_following(expression, zone, start, len(expected)) == expected


@pytest.mark.parametrize(
    ("zone", "start"),
    [(BERLIN, "2026-03-28T20:00"), (BERLIN, "2026-10-24T20:00"), (LORD_HOWE, "2026-04-04T20:00"),
     (LORD_HOWE, "2026-10-03T20:00"), ("Pacific/Apia", "2011-12-29T20:00"), (NEW_YORK, "2028-02-28T20:00")],
)  # fmt: skip
def test_two_days_minute_by_minute_are_as_a_clock_on_the_wall_shows_them(zone, start):
    start_ms = ms(f"{start}+00:00")
    end_ms = start_ms + 2 * 86_400_000
    minutes = shown_first(ZoneInfo(zone), start_ms, end_ms)
    for expression in EXPRESSIONS:
        made = Cron.parse(expression, zone)
        found, at_ms = set(), made.next_at_or_after(start_ms)
        while at_ms < end_ms:
            found.add(at_ms)
            at_ms = made.next_at_or_after(at_ms + 1)
        days = {day for _, day, _ in minutes if is_on(made, day)}
        named = set(made.minutes)
        again = shown_again(ZoneInfo(zone), start_ms, end_ms) if has_wildcard(expression) else []
        expected = {at_ms for at_ms, day, minute in [*minutes, *again] if minute in named and day in days}
        assert (expression, found) == (expression, expected)


def has_wildcard(expression):
    return expression == "@hourly" or any(field.startswith("*") for field in expression.split()[:2])


def shown_again(tz, start_ms, end_ms):
    """Every minute that a clock on the wall shows for the second time: when, its day, the minute of that."""
    shown = [(at_ms, datetime.fromtimestamp(at_ms / 1_000, tz)) for at_ms in range(start_ms, end_ms, 60_000)]
    return [(at_ms, now.date(), 60 * now.hour + now.minute) for at_ms, now in shown if now.fold]


# When clocks are changed, found by a look at each day of some years; and zones that once did something rare.
CHANGED = [
    (zone, day_s * 1_000)
    for zone in ["Europe/London", "America/Santiago", "Asia/Gaza", "Africa/Cairo", "Antarctica/Troll", "America/Nuuk",
                 "Asia/Beirut", "America/Havana", "Australia/Adelaide", "Pacific/Chatham", "Asia/Pyongyang", "America/Caracas",
                 "Pacific/Norfolk", "Europe/Volgograd", "Africa/El_Aaiun", "Pacific/Kwajalein", *ZONES]
    for day_s in range(ms("2014-01-01T00:00+00:00") // 1_000, ms("2026-12-31T00:00+00:00") // 1_000, 86_400)
    if find_offset_s(day_s, ZoneInfo(zone)) != find_offset_s(day_s + 86_400, ZoneInfo(zone))
]  # fmt: skip


@given(
    st.sampled_from(CHANGED),
    st.sampled_from(["* * * * *", "*/15 * * * *", "7 * * * *", "@hourly", "*/20 0-3 * * *", "30 */2 * * *", "*/10 2 * * *"]),
)
@settings(max_examples=20 if settings().max_examples < 100 else 300)
def test_with_a_wildcard_each_minute_counts_as_often_as_clocks_show_it(changed, expression):
    zone, day_ms = changed
    tz, made = ZoneInfo(zone), Cron.parse(expression, zone)
    start_ms, end_ms = day_ms - 3_600_000, day_ms + 90_000_000
    minutes, named = [*shown_first(tz, start_ms, end_ms), *shown_again(tz, start_ms, end_ms)], set(made.minutes)
    found, at_ms = [], made.next_at_or_after(start_ms)
    while at_ms < end_ms:
        found.append(at_ms)
        at_ms = made.next_at_or_after(at_ms + 1)
    assert found == sorted({at_ms for at_ms, _, minute in minutes if minute in named})


@given(st.sampled_from(CHANGED), st.integers(0, 23), st.integers(0, 59))
def test_a_fixed_time_counts_once_a_day_whatever_clocks_do(changed, hour, minute):
    zone, day_ms = changed
    tz, made = ZoneInfo(zone), Cron.parse(f"{minute} {hour} * * *", zone)
    start_ms, end_ms = day_ms - 3 * 86_400_000, day_ms + 4 * 86_400_000
    days = {day for _, day, shown in shown_first(tz, start_ms, end_ms) if shown == 60 * hour + minute}
    found, at_ms = 0, made.next_at_or_after(start_ms)
    while at_ms < end_ms:
        found, at_ms = found + 1, made.next_at_or_after(at_ms + 1)
    assert found == len(days)


def shown_first(tz, start_ms, end_ms):
    """Every minute that a clock on the wall shows, or jumps over: when it first does, its day, the minute of that."""
    wall = datetime.fromtimestamp(start_ms / 1_000 - 60, tz).replace(tzinfo=None)
    minutes = []
    for at_ms in range(start_ms, end_ms, 60_000):
        now = datetime.fromtimestamp(at_ms / 1_000, tz).replace(tzinfo=None)
        while wall < now:
            wall += timedelta(minutes=1)
            minutes.append((at_ms, wall.date(), 60 * wall.hour + wall.minute))
    return minutes


def is_on(made, day):
    in_month, in_week = day.day in made.days, day.weekday() in made.weekdays
    return day.month in made.months and (in_month or in_week if made.either else in_month and in_week)


@given(crons, moments_ms)
def test_a_match_is_not_before_the_moment_and_stays_where_it_is(made, moment_ms):
    found_ms = made.next_at_or_after(moment_ms)
    assert found_ms >= moment_ms
    assert made.next_at_or_after(found_ms) == found_ms
    # Beyond the end nothing is looked for.
    assert found_ms == moment_ms or found_ms > END_MS or made.next_at_or_after(found_ms - 1) == found_ms


@given(crons, moments_ms, st.integers(0, 10**10))
def test_a_later_moment_never_gives_an_earlier_match(made, moment_ms, later_ms):
    later_ms += moment_ms
    assert made.next_at_or_after(moment_ms) <= made.next_at_or_after(later_ms) or later_ms >= END_MS


@pytest.mark.parametrize("zone", ZONES)
def test_what_no_calendar_covers_comes_back_as_it_is(zone):
    made = Cron.parse("0 0 29 2 *", zone)
    for moment_ms in (-(10**40), -1, END_MS, 2**63, 10**40):
        assert made.next_at_or_after(moment_ms) == moment_ms


@pytest.mark.parametrize("zone", [*ZONES, "Pacific/Kiritimati", "Etc/GMT+12"])
def test_both_ends_of_time(zone):
    made = Cron.parse("0 0 29 2 *", zone)
    assert made.next_at_or_after(0) // 86_400_000 in (788, 789)  # 29 February 1972
    assert made.next_at_or_after(END_MS - 1) == END_MS - 1
    assert 0 <= Cron.parse("* * * * *", zone).next_at_or_after(END_MS - 1) - END_MS <= 1


def test_a_wait_of_forty_years_looks_at_months_and_not_at_minutes(monkeypatch):
    looks = []
    monkeypatch.setattr(cron, "monthrange", lambda *month, real=cron.monthrange: looks.append(month) or real(*month))
    made = Cron.parse("0 0 29 2 */7")
    looks.clear()
    assert made.next_at_or_after(ms("2088-03-01T00:00+00:00")) == ms("2128-02-29T00:00+00:00")
    assert len(looks) == 40


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "not of five fields: minute, hour"), ("* * * *", "not of five fields"), ("* * * * * *", "not of five fields"),
        ("@reboot", "nor one of @hourly"), ("60 * * * *", "60 is not a minute: 0-59"), ("* 24 * * *", "hour: 0-23"),
        ("* * 0 * *", "day of month: 1-31"), ("* * 32 * *", "day of month: 1-31"), ("* * * 13 *", "month: 1-12 or one of JAN"),
        ("* * * mai *", "mai is not a month"), ("* * * * 8", "day of week: 0-7 or one of SUN"), ("JAN * * * *", "minute: 0-59"),
        ("5/15 * * * *", "write 5-59/15"), ("30-10 * * * *", "goes backwards"), ("*/0 * * * *", "step from 1 to 59"),
        ("*/60 * * * *", "step from 1 to 59"), ("1-5/9 * * * *", "step from 1 to 4"), ("1, * * * *", "is not a minute"),
        ("-1 * * * *", "is not a minute"), ("1.5 * * * *", "is not a minute"), ("? * * * *", "is not a minute"),
        ("* * L * *", "is not a day of month"), ("* * * * 1#2", "is not a day of week"), ("٣ * * * *", "is not a minute"),
        ("0 0 30 2 *", "never matches"), ("0 0 31 2,4,6,9,11 *", "never matches"), ("0 0 31 4 */2", "never matches"),
        ("1," * 300 + "1 * * * *", "is not a cron expression"), (15, "is not a cron expression"),
        (None, "nothing is not a cron expression"), (10**400, "is not a cron expression"), (["*"], "is not a cron expression"),
    ],
)  # fmt: skip
def test_anything_else_is_refused(expression, reason):
    with pytest.raises(PolicyInvalid) as refused:
        Cron.parse(expression)
    assert refused.value.path == "cron"
    assert reason in refused.value.reason
    assert len(refused.value.reason) < 300


@pytest.mark.parametrize(
    "zone",
    ["", "Europe", "Europe/Berlinn", "europe/berlin", "localtime", "posixrules", "right/UTC", "../etc/passwd", "/etc/passwd",
     "A" * 500, "Europe/\0", "+02:00", None, 2, ["UTC"]],
)  # fmt: skip
def test_what_is_no_time_zone_is_refused(zone):
    with pytest.raises(PolicyInvalid) as refused:
        Cron.parse("* * * * *", zone)
    assert refused.value.path == "zone"
    assert "is not an IANA time zone" in refused.value.reason
