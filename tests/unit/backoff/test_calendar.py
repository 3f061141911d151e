"""Quiet hours and alignment in a policy: read, inherited, combined, and heeded by the decision."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff import JITTERS, Calendar, Constant, Cron, Park, Policy, PolicyInvalid, RetryAt
from backoff.parse import DEFAULT, parse_policy
from backoff.time_zone import END_MS

DAY_MS = 86_400_000
NIGHT = {"from": "22:00", "to": "06:00", "zone": "Europe/Berlin"}
NOON = {"from": "12:00", "to": "13:00", "zone": "UTC", "days": ["mon"]}
QUARTERS = {"cron": "*/15 * * * *"}


def ms(text):
    return int(datetime.fromisoformat(text).timestamp() * 1_000)


def utc(at_ms):
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(" ", "milliseconds")[:23]


def calendar(**keys):
    return parse_policy(keys).calendar


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"quiet_hours": NIGHT}, "quiet 22:00–06:00 Europe/Berlin"),
        ({"quiet_hours": [NIGHT, NOON]}, "quiet 22:00–06:00 Europe/Berlin, quiet 12:00–13:00 UTC on mon"),
        ({"align": QUARTERS}, "aligned to */15 * * * * UTC"),
        ({"align": {"cron": " @daily ", "zone": "Asia/Tokyo"}}, "aligned to @daily Asia/Tokyo"),
        ({"quiet_hours": NIGHT, "align": QUARTERS}, "aligned to */15 * * * * UTC, quiet 22:00–06:00 Europe/Berlin"),
    ],
)
def test_a_calendar_says_what_it_is(keys, text):
    assert calendar(**keys).describe_rules() == text


def test_there_is_none_unless_it_is_asked_for():
    assert DEFAULT.calendar is None
    assert parse_policy({"max_attempts": 3}).calendar is None


def test_each_key_is_inherited_unless_it_is_written():
    base = parse_policy({"quiet_hours": NIGHT, "align": QUARTERS})
    assert parse_policy({"jitter": "none"}, base).calendar == base.calendar
    assert parse_policy({"quiet_hours": NOON}, base).calendar == calendar(quiet_hours=NOON, align=QUARTERS)
    assert parse_policy({"align": {"cron": "@hourly"}}, base).calendar == calendar(quiet_hours=NIGHT, align={"cron": "@hourly"})


def test_none_switches_off_what_is_inherited():
    base = parse_policy({"quiet_hours": NIGHT, "align": QUARTERS})
    assert parse_policy({"quiet_hours": "none"}, base).calendar == calendar(align=QUARTERS)
    assert parse_policy({"align": "none"}, base).calendar == calendar(quiet_hours=NIGHT)
    assert parse_policy({"align": "none", "quiet_hours": "none"}, base).calendar is None
    assert parse_policy({"align": "none"}).calendar is None


@pytest.mark.parametrize(
    ("keys", "path", "reason"),
    [
        ({"quiet_hours": "22-06"}, "quiet_hours", "none is for no quiet hours"),
        ({"quiet_hours": None}, "quiet_hours", "nothing is not a mapping"),
        ({"quiet_hours": False}, "quiet_hours", "not a mapping"),
        ({"quiet_hours": []}, "quiet_hours", "list of 1 to 50"),
        ({"quiet_hours": [NIGHT] * 51}, "quiet_hours", "list of 1 to 50"),
        ({"quiet_hours": [NIGHT, "none"]}, "quiet_hours[1]", "not a mapping"),
        ({"quiet_hours": NIGHT | {"zone": "Mars"}}, "quiet_hours.zone", "not an IANA time zone"),
        ({"quiet_hours": [NIGHT, NOON | {"zone": "Mars"}]}, "quiet_hours[1].zone", "not an IANA time zone"),
        ({"quiet_hours": [NIGHT, NOON | {"days": ["mo"]}]}, "quiet_hours[1].days[0]", "not one of mon"),
        ({"align": "*/15 * * * *"}, "align", "{cron: '*/15 * * * *', zone: Europe/Berlin}"),
        ({"align": None}, "align", "nothing is not a mapping"),
        ({"align": {}}, "align.cron", "is missing"),
        ({"align": {"zone": "UTC"}}, "align.cron", "is missing"),
        ({"align": {"cron": "61 * * * *"}}, "align.cron", "61 is not a minute"),
        ({"align": {"cron": "0 0 30 2 *"}}, "align.cron", "never matches"),
        ({"align": QUARTERS | {"zone": None}}, "align.zone", "nothing is not an IANA time zone"),
        ({"align": QUARTERS | {"every": 2}}, "align.every", "align has cron and zone"),
        # Nothing would ever be retried.
        ({"quiet_hours": NIGHT | {"from": "06:00"}}, "quiet_hours", "all of the week is quiet"),
        ({"quiet_hours": [NIGHT, NIGHT | {"from": "05:00", "to": "22:00"}]}, "quiet_hours", "all of the week is quiet"),
        ({"quiet_hours": NIGHT, "align": {"cron": "0 23 * * *", "zone": "Europe/Berlin"}}, "align", "no match outside"),
        ({"quiet_hours": NIGHT, "align": {"cron": "* 22-23,0-5 * * *", "zone": "Europe/Berlin"}}, "align", "no match outside"),
    ],
)
def test_a_calendar_is_refused_with_its_place(keys, path, reason):
    with pytest.raises(PolicyInvalid) as refused:
        parse_policy(keys)
    assert refused.value.path == path
    assert reason in refused.value.reason


def test_what_is_inherited_is_held_against_what_is_written():
    base = parse_policy({"align": {"cron": "0 23 * * *"}})
    with pytest.raises(PolicyInvalid) as refused:
        parse_policy({"quiet_hours": NIGHT | {"zone": "UTC"}}, base)
    assert refused.value.path == "quiet_hours"


def test_a_pair_that_meets_seldom_is_not_refused():
    sundays_apart = NIGHT | {"days": ["mon", "tue", "wed", "thu", "fri", "sat"]}
    seldom = calendar(quiet_hours=sundays_apart, align={"cron": "0 23 29 2 *", "zone": "Europe/Berlin"})
    assert utc(seldom(ms("2033-01-01T00:00+00:00"))) == "2060-02-29 22:00:00.000"
    yearly = calendar(quiet_hours=NIGHT | {"from": "02:00", "to": "03:00"}, align={"cron": "30 2 * * *", "zone": "Europe/Berlin"})
    assert utc(yearly(ms("2026-03-29T01:00:00.001+00:00"))) == "2027-03-28 01:00:00.000"


def test_align_comes_first_and_both_hold_in_the_end():
    both = calendar(quiet_hours=NIGHT | {"zone": "UTC"}, align={"cron": "50 * * * *"})
    assert utc(both(ms("2026-05-01T20:50+00:00"))) == "2026-05-01 20:50:00.000"
    assert utc(both(ms("2026-05-01T20:51+00:00"))) == "2026-05-01 21:50:00.000"
    assert utc(both(ms("2026-05-01T21:51+00:00"))) == "2026-05-02 06:50:00.000"


HERE_AND_THERE = [NOON | {"days": ["sun"]}, NIGHT | {"zone": "America/New_York"}]
calendars = st.builds(
    dict,
    quiet_hours=st.sampled_from([NIGHT, NOON, [NIGHT, NOON], HERE_AND_THERE, "none"]),
    align=st.sampled_from([QUARTERS, {"cron": "30 2 * * *", "zone": "Europe/Berlin"}, {"cron": "7 */5 * * MON-FRI"}, "none"]),
)
moments_ms = st.integers(63_072_000_000, END_MS - 400 * DAY_MS)


@given(calendars, moments_ms, st.integers(0, 200_000))
def test_a_calendar_is_never_early_settles_and_keeps_the_order(keys, moment_ms, later_ms):
    with contextlib.suppress(PolicyInvalid):
        made = calendar(**keys) or Calendar()
        allowed_ms = made(moment_ms)
        assert moment_ms <= allowed_ms == made(allowed_ms) <= made(moment_ms + later_ms)
        assert all(period.next_at_or_after(allowed_ms) == allowed_ms for period in made.quiet_hours)
        assert made.align is None or made.align.next_at_or_after(allowed_ms) == allowed_ms


@given(calendars, moments_ms, st.lists(st.integers(-60_000, 60_000), max_size=5))
def test_what_is_remembered_of_a_minute_holds_for_all_of_it(keys, moment_ms, apart_ms):
    with contextlib.suppress(PolicyInvalid):
        warm = calendar(**keys) or Calendar()
        for each_ms in apart_ms:
            warm(moment_ms + each_ms)
        assert warm(moment_ms) == Calendar(warm.quiet_hours, warm.align)(moment_ms)


def test_a_batch_of_thousands_costs_one_look_a_minute(monkeypatch):
    looks = []
    real = Cron.next_at_or_after
    monkeypatch.setattr(Cron, "next_at_or_after", lambda cron, at_ms: looks.append(at_ms) or real(cron, at_ms))
    hourly = calendar(align={"cron": "@hourly"})
    looks.clear()
    start_ms = ms("2026-05-01T10:00:00.001+00:00")
    moved = {hourly(start_ms + late_ms) for late_ms in range(0, 120_000, 20)}
    assert moved == {ms("2026-05-01T11:00+00:00")}
    assert len({at_ms // 60_000 for at_ms in looks}) <= 3
    assert len(looks) <= 6


def test_what_is_remembered_is_bounded():
    quarters = calendar(align=QUARTERS)
    for minute in range(5_000):
        quarters(minute * 60_000)
    assert len(quarters._moved) <= 4_096


NOW_MS = ms("2026-05-01T21:00+00:00")  # 23:00 in Berlin
POLICY = Policy(
    curve=Constant(5_000, 60_000),
    jitter=JITTERS["none"],
    max_attempts=3,
    max_age_ms=DAY_MS,
    max_delay_ms=60_000,
    honour_retry_at=True,
    calendar=calendar(quiet_hours=NIGHT),
)
MORNING_MS = ms("2026-05-02T04:00+00:00")


def decide(made=POLICY, **given_ms):
    usual = {"attempt": 1, "first_failed_at_ms": NOW_MS, "failed_at_ms": NOW_MS, "now_ms": NOW_MS, "draw": 0.5}
    return made.decide(**(usual | given_ms))


def test_a_retry_in_quiet_hours_waits_for_their_end_even_beyond_the_longest_delay():
    assert decide() == RetryAt(MORNING_MS)
    assert decide(retry_at_ms=NOW_MS + 10) == RetryAt(MORNING_MS)


def test_the_longest_delay_is_cut_before_the_calendar_is_asked():
    assert decide(retry_at_ms=NOW_MS + 30 * DAY_MS) == RetryAt(MORNING_MS)


def test_a_retry_that_the_calendar_makes_too_late_is_parked():
    wait_ms = MORNING_MS - NOW_MS
    assert decide(replace(POLICY, max_age_ms=wait_ms)) == RetryAt(MORNING_MS)
    assert decide(replace(POLICY, max_age_ms=wait_ms - 1)) == Park("max_age")


def test_an_overdue_retry_is_made_now_and_now_is_quiet():
    assert decide(failed_at_ms=NOW_MS - 12 * 3_600_000) == RetryAt(MORNING_MS)


def test_an_overdue_retry_keeps_its_place_where_now_is_open():
    open_ms = MORNING_MS + 1
    assert decide(failed_at_ms=NOW_MS, now_ms=open_ms) == RetryAt(NOW_MS + 5_000)


def test_an_open_time_is_left_alone():
    assert decide(failed_at_ms=MORNING_MS + 1, now_ms=MORNING_MS + 2) == RetryAt(MORNING_MS + 5_001)


@pytest.mark.parametrize("now_ms", [-(2**63), -1, 0, 2**63 - 1, 10**40])
def test_there_is_a_decision_at_any_time(now_ms):
    made = replace(POLICY, max_age_ms=10**50)
    decision = decide(made, now_ms=now_ms, failed_at_ms=now_ms, first_failed_at_ms=now_ms)
    assert now_ms <= decision.due_at_ms <= now_ms + 2 * DAY_MS
