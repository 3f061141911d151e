"""When something that recurs comes again: without drift, across changes of the clocks, and after downtime."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff import PolicyInvalid
from backoff.cron import Cron
from backoff.recurrence import ALL, MISFIRES, ONCE, SKIP, find_first_run, find_next_run, is_passed_over

BERLIN = "Europe/Berlin"


@dataclass(frozen=True)
class Plan:
    run: int = 1
    start_ms: int = 0
    every_ms: int = 0
    cron: str = ""
    zone: str = "UTC"
    end_ms: int | None = None
    jitter_ms: int = 0
    seed: int = 0
    late_ms: int = 60_000
    misfire: str = ONCE
    catch_up_max: int = 1


def ms(text, zone="UTC", fold=0):
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp() * 1_000)


def local(at_ms, zone):
    return datetime.fromtimestamp(at_ms / 1_000, ZoneInfo(zone)).isoformat(" ", "minutes")


def plan_after(plan, now_ms, up_to=1_000):
    """List what is made at one moment, in turn: due times of the runs, then the first run that is still to come."""
    made, found = [], find_first_run(plan, plan.start_ms)
    while found and found[0] <= now_ms:
        due_ms, run = found
        plan = replace(plan, run=run)
        if not is_passed_over(plan, due_ms, now_ms):
            made.append(found)
        assert len(made) <= up_to
        found = find_next_run(plan, due_ms, now_ms)
    return made, found


starts_ms = st.integers(0, 4_000_000_000_000)
periods_ms = st.integers(1, 10_000_000_000)


@given(starts_ms, periods_ms, st.lists(st.integers(0, 60_000), min_size=1, max_size=50))
def test_0_5_the_nth_run_is_at_start_plus_n_periods_however_late_each_was_made(start_ms, every_ms, lates_ms):
    plan = Plan(start_ms=start_ms, every_ms=every_ms)
    due_ms, run = find_first_run(plan, start_ms)
    for n, late_ms in enumerate(lates_ms, 1):
        assert (due_ms, run) == (start_ms + n * every_ms, n)
        due_ms, run = find_next_run(replace(plan, run=run), due_ms, due_ms + late_ms)


@given(starts_ms, periods_ms, st.integers(0, 3), st.integers(-100_000, 10_000_000_000))
def test_the_first_run_is_the_first_of_its_grid(start_ms, every_ms, run, after_ms):
    plan, from_ms = Plan(run=run, start_ms=start_ms, every_ms=every_ms), start_ms + after_ms
    due_ms, found = find_first_run(plan, from_ms)
    assert found >= run and due_ms >= from_ms and (due_ms - start_ms) == found * every_ms
    assert found == run or due_ms - every_ms < from_ms


@given(starts_ms, periods_ms, st.floats(0, 1, exclude_max=True), st.integers(0, 2**64 - 1), st.integers(1, 30))
def test_jitter_moves_a_run_and_not_the_grid(start_ms, every_ms, part, seed, runs):
    jitter_ms = int(every_ms * part)
    plan = Plan(start_ms=start_ms, every_ms=every_ms, jitter_ms=jitter_ms, seed=seed)
    due_ms, run = found = find_first_run(plan, start_ms)
    assert found == find_first_run(plan, start_ms)
    for n in range(1, runs + 1):
        assert run == n and 0 <= due_ms - (start_ms + n * every_ms) <= jitter_ms
        due_ms, run = find_next_run(replace(plan, run=run), due_ms, due_ms)


@given(st.integers(1, 1_000), st.integers(0, 100_000), st.sampled_from(MISFIRES), st.lists(st.integers(0, 200_000), max_size=30))
def test_no_run_is_due_before_the_one_before_it(every_ms, jitter_ms, misfire, lates_ms):
    plan = Plan(every_ms=every_ms, jitter_ms=jitter_ms, misfire=misfire, catch_up_max=5)
    due_ms, run = find_first_run(plan, 0)
    for late_ms in lates_ms:
        later_ms, next_run = find_next_run(replace(plan, run=run), due_ms, due_ms + late_ms)
        assert later_ms > due_ms and next_run > run
        due_ms, run = later_ms, next_run


def test_jitter_is_spread_evenly_over_runs_and_over_seeds():
    by_run = [find_first_run(Plan(run=n, every_ms=1, jitter_ms=99), 0)[0] - n for n in range(1_000)]
    by_seed = [find_first_run(Plan(run=1, every_ms=1, jitter_ms=99, seed=n), 0)[0] - 1 for n in range(1_000)]
    for drawn in (by_run, by_seed):
        assert min(drawn) < 5 and max(drawn) > 94 and 45 < sum(drawn) / len(drawn) < 54


def test_jitter_does_not_make_a_cron_expression_miss_a_match():
    plan = Plan(run=0, cron="* * * * *", jitter_ms=59_000, seed=7)
    found = find_first_run(plan, 0)
    for minute in range(500):
        assert found[1] == minute and 0 <= found[0] - 60_000 * minute <= 59_000
        found = find_next_run(replace(plan, run=found[1]), found[0], found[0])


@given(st.sampled_from(MISFIRES), st.integers(1, 50), st.integers(1, 100_000), st.integers(0, 100_000), st.integers(0, 10**8))
def test_0_14_what_is_made_after_downtime_is_bounded_and_then_the_grid_goes_on(misfire, most, every_ms, late_ms, down_ms):
    plan = Plan(start_ms=5, every_ms=every_ms, misfire=misfire, catch_up_max=most, late_ms=late_ms)
    now_ms = 5 + every_ms + down_ms
    missed, (due_ms, run) = down_ms > late_ms, find_next_run(plan, 5 + every_ms, now_ms)
    assert due_ms == 5 + run * every_ms
    waiting = (now_ms - 5) // every_ms - 1  # that are due, beside the one that is made just now
    if not missed:
        assert run == 2 and not is_passed_over(plan, 5 + every_ms, now_ms)
        return
    assert is_passed_over(plan, 5 + every_ms, now_ms) is (misfire == SKIP)
    left = max(0, waiting + 2 - run)
    assert left == (min(waiting, most - 1) if misfire == ALL else 0)


@pytest.mark.parametrize(
    ("misfire", "most", "made"),
    [(ONCE, 9, [1]), (SKIP, 9, []), (ALL, 1, [1]), (ALL, 3, [1, 9, 10]), (ALL, 10, [*range(1, 11)]), (ALL, 99, [*range(1, 11)])],
)
def test_0_14_ten_days_of_downtime(misfire, most, made):
    day_ms = 86_400_000
    done, to_come = plan_after(Plan(every_ms=day_ms, misfire=misfire, catch_up_max=most), 10 * day_ms + 3_600_000)
    assert [run for _, run in done] == made
    assert to_come == (11 * day_ms, 11)


@pytest.mark.parametrize(
    ("misfire", "most", "days"), [(ONCE, 9, [1]), (SKIP, 9, []), (ALL, 3, [1, 9, 10]), (ALL, 99, [*range(1, 11)])]
)
def test_0_14_ten_days_of_downtime_by_cron(misfire, most, days):
    plan = Plan(run=0, start_ms=ms("2026-05-01T00:00"), cron="0 12 * * *", misfire=misfire, catch_up_max=most)
    done, to_come = plan_after(plan, ms("2026-05-10T13:00"))
    assert [due_ms for due_ms, _ in done] == [ms(f"2026-05-{day:02}T12:00") for day in days]
    assert to_come[0] == ms("2026-05-11T12:00")


@given(
    st.sampled_from(["* * * * *", "*/7 * * * *", "0 9-17 * * MON-FRI", "0 0 1 * *", "30 2 * * *", "* * 3 * *"]),
    st.sampled_from(["UTC", BERLIN, "Australia/Lord_Howe"]),
    st.integers(1, 20),
    st.integers(ms("2026-03-20T00:00"), ms("2026-04-10T00:00")),
    st.integers(61_000, 40 * 86_400_000),
)
def test_catching_up_with_cron_takes_the_latest_matches(written, zone, most, start_ms, down_ms):
    cron = Cron.parse(written, zone)
    due_ms = cron.next_at_or_after(start_ms)
    now_ms, matches, at_ms = due_ms + down_ms, [], cron.next_at_or_after(due_ms + 1)
    while at_ms <= now_ms:
        matches.append(at_ms)
        at_ms = cron.next_at_or_after(at_ms + 1)
    plan = Plan(run=0, start_ms=start_ms, cron=written, zone=zone, misfire=ALL, catch_up_max=most)
    expected = matches[-(most - 1) :] if most > 1 else []
    assert find_next_run(plan, due_ms, now_ms) == ((expected or [at_ms])[0], 1)


def test_a_year_of_missed_minutes_is_no_work():
    year_ms = 365 * 86_400_000
    plan = Plan(run=0, cron="* * * * *", misfire=ALL, catch_up_max=100)
    assert find_next_run(plan, 0, year_ms) == (year_ms - 98 * 60_000, 1)


def crossing(written, start, count):
    plan, found = Plan(run=0, start_ms=ms(start, BERLIN), cron=written, zone=BERLIN), []
    due_ms, run = find_first_run(plan, plan.start_ms)
    for _ in range(count):
        found.append(local(due_ms, BERLIN))
        due_ms, run = find_next_run(replace(plan, run=run), due_ms, due_ms + 10)
    return found


def test_0_14_a_time_that_clocks_jump_over_is_the_first_after_the_jump():
    days = crossing("30 2 * * *", "2026-03-28T00:00", 3)
    assert days == ["2026-03-28 02:30+01:00", "2026-03-29 03:00+02:00", "2026-03-30 02:30+02:00"]


def test_0_14_a_time_that_clocks_show_twice_comes_once():
    days = crossing("30 2 * * *", "2026-10-24T00:00", 3)
    assert days == ["2026-10-24 02:30+02:00", "2026-10-25 02:30+02:00", "2026-10-26 02:30+01:00"]


def test_0_14_a_period_does_not_care_for_clocks_on_walls():
    plan = Plan(start_ms=ms("2026-03-28T02:30", BERLIN), every_ms=86_400_000)
    assert local(find_first_run(plan, plan.start_ms)[0], BERLIN) == "2026-03-29 03:30+02:00"


@pytest.mark.parametrize("misfire", MISFIRES)
def test_nothing_is_after_the_end(misfire):
    plan = Plan(every_ms=1_000, end_ms=5_000, misfire=misfire, catch_up_max=100)
    assert find_next_run(replace(plan, run=4), 4_000, 4_000) == (5_000, 5)
    assert find_next_run(replace(plan, run=5), 5_000, 5_000) is None
    # What was missed before the end may still be made up for.
    assert find_next_run(replace(plan, run=2), 2_000, 10**9) == ((3_000, 3) if misfire == ALL else None)
    assert find_first_run(plan, 5_001) is None


def test_what_cron_missed_before_the_end_is_made_up_for():
    plan = Plan(run=0, cron="0 * * * *", end_ms=5 * 3_600_000, misfire=ALL, catch_up_max=3)
    assert [due_ms // 3_600_000 for due_ms, _ in plan_after(plan, 10**9)[0]] == [0, 4, 5]


def test_nothing_by_cron_is_before_the_start_or_after_the_end():
    plan = Plan(run=0, cron="@daily", start_ms=ms("2026-05-01T10:00"), end_ms=ms("2026-05-03T00:00"))
    found, days = find_first_run(plan, 0), []
    while found:
        days.append(found[0])
        found = find_next_run(replace(plan, run=found[1]), *found[:1], found[0])
    assert days == [ms("2026-05-02T00:00"), ms("2026-05-03T00:00")]


def test_once_is_one_run_and_may_be_passed_over():
    plan = Plan(run=0, start_ms=70_000)
    assert find_first_run(plan, 10**12) == (70_000, 0)
    assert find_next_run(plan, 70_000, 70_000) is None
    assert not is_passed_over(plan, 70_000, 10**12)
    skipping = replace(plan, misfire=SKIP)
    assert is_passed_over(skipping, 70_000, 130_001) and not is_passed_over(skipping, 70_000, 130_000)


@given(st.sampled_from(["*/5 * * * *", "0 0 * * *", "0 3 * * SUN"]), st.integers(0, 4_000_000_000_000))
def test_runs_by_cron_only_ever_go_forward(written, start_ms):
    plan, found, dues = Plan(run=0, start_ms=start_ms, cron=written, zone=BERLIN), None, []
    found = find_first_run(plan, start_ms)
    for _ in range(20):
        dues.append(found[0])
        found = find_next_run(replace(plan, run=found[1]), found[0], found[0])
    assert all(earlier < later for earlier, later in pairwise(dues)) and dues[0] >= start_ms


def test_a_zone_that_is_not_here_is_told():
    with pytest.raises(PolicyInvalid, match="Atlantis"):
        find_first_run(Plan(cron="@daily", zone="Europe/Atlantis"), 0)


def test_weeks_are_seven_days():
    plan = Plan(start_ms=ms("2026-01-01T00:00"), every_ms=604_800_000)
    assert find_first_run(plan, plan.start_ms)[0] == ms("2026-01-01T00:00") + timedelta(weeks=1) / timedelta(milliseconds=1)
