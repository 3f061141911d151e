"""What a consumer group has passed of a topic: whatever it has not committed is never said to be passed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retry.worker.consumer_lag_samples import PassedMarks

STEP_MS = 10_000
PARTITIONS = 3


def test_what_a_group_never_committed_counts_as_read_up_to_where_it_was_seen_first() -> None:
    marks = PassedMarks()
    assert marks.observe_committed("g", "t", {0: 7, 1: 5}, 100_000, {0: 7}) == 95_000
    marks.note_mark("g", "t", 95_000)
    assert marks.observe_committed("g", "t", {0: 7, 1: 6}, 200_000, {0: 7}) is None, "one came where nothing was committed"
    assert marks.observe_committed("g", "t", {0: 7, 1: 6}, 210_000, {0: 7, 1: 6}) == 205_000


def test_what_is_told_goes_beyond_the_moment_at_which_an_end_was_seen_and_no_further() -> None:
    marks, told = PassedMarks(), []
    for at_ms in range(100_000, 150_000, 4_000):
        if (until_ms := marks.observe_committed("g", "t", {0: 7}, at_ms, {0: 7})) is not None:
            marks.note_mark("g", "t", until_ms)
            told.append(until_ms)
    assert told == [95_000, 99_000, 103_000]


def test_a_group_that_is_not_asked_for_any_more_is_forgotten() -> None:
    marks = PassedMarks()
    marks.note_mark("g", "t", 95_000)
    marks.retain_groups({"g"})
    assert marks.observe_committed("g", "t", {0: 1}, 100_000, {0: 1}) is None
    marks.retain_groups(set())
    assert marks.observe_committed("g", "t", {0: 1}, 100_000, {0: 1}) == 95_000


@given(st.lists(st.tuples(
    st.lists(st.integers(0, 5), min_size=PARTITIONS, max_size=PARTITIONS),
    st.lists(st.floats(0, 1), min_size=PARTITIONS, max_size=PARTITIONS),
), min_size=1, max_size=80))  # fmt: skip
def test_nothing_is_said_to_be_passed_that_lay_there_and_is_not_committed(
    looks: list[tuple[list[int], list[float]]]
) -> None:
    marks, ends, committed, seen = PassedMarks(), [0] * PARTITIONS, [0] * PARTITIONS, list[tuple[int, list[int]]]()
    for n, (more, parts) in enumerate(looks, 10):
        ends = [end + new for end, new in zip(ends, more, strict=True)]
        seen.append((n * STEP_MS, ends))
        committed = [at + int((end - at) * part) for at, end, part in zip(committed, ends, parts, strict=True)]
        until_ms = marks.observe_committed("g", "t", dict(enumerate(ends)), n * STEP_MS, dict(enumerate(committed)))
        if until_ms is not None:
            marks.note_mark("g", "t", until_ms)
            lay = [there for at_ms, there in seen if at_ms <= until_ms]
            assert all(at >= end for there in lay for at, end in zip(committed, there, strict=True))
    # Whatever happened before, in the end everything is told.
    for n in range(len(looks) + 10, len(looks) + 14):
        until_ms = marks.observe_committed("g", "t", dict(enumerate(ends)), n * STEP_MS, dict(enumerate(ends)))
        marks.note_mark("g", "t", until_ms or marks._told["g", "t"])
    assert marks._told["g", "t"] >= next(at_ms for at_ms, there in seen if there == ends)
