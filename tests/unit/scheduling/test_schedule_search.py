"""What is found among schedules, and in which order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.scheduling.messages.search import Query, QueryInvalid, ScheduleJson, SearchPage, parse_query, search


def make_schedule_json(id_: str, epoch: int, timestamp: int = 0) -> ScheduleJson:
    others = {"topic": "s", "target-topic": "t", "target-key": "k", "value": None}
    return {"id": id_, "epoch": epoch, "timestamp": timestamp, **others}  # type: ignore[typeddict-item]


MANY = [make_schedule_json(f"vid-{n % 7}-{n}", n // 2, 1_000 - n) for n in range(50)]


def ids(found: SearchPage) -> list[str]:
    return [each["id"] for each in found.page]


def test_1_23_by_part_of_the_id_and_range_of_the_epoch_both_ends_included() -> None:
    found = search(MANY, parse_query({"schedule-id": "vid-3", "epoch-from": "5", "epoch-to": "19"}))
    wanted = [each for each in MANY if "vid-3" in each["id"] and 5 <= each["epoch"] <= 19]
    assert wanted
    assert sorted(ids(found)) == sorted(each["id"] for each in wanted)
    assert found.total == len(wanted)


@pytest.mark.parametrize(("sort", "field", "descending"), [
    ("", "timestamp", True), ("asc", "timestamp", False), ("epoch", "epoch", True), ("ID ASC", "id", False),
    ("epoch desc", "epoch", True),
])  # fmt: skip
def test_1_23_sort_by_is_a_field_and_an_order(sort: str, field: str, descending: bool) -> None:
    wanted = parse_query({"sort-by": sort})
    assert (wanted.field, wanted.descending) == (field, descending)
    values = [each[field] for each in search(MANY, wanted).page]  # type: ignore[literal-required]
    assert values == sorted(values, reverse=descending)


def test_1_23_max_is_at_most_a_thousand() -> None:
    assert parse_query({"max": "5000"}).rows_max == parse_query({}).rows_max == parse_query({"max": "0"}).rows_max == 1_000
    assert parse_query({"max": "7"}).rows_max == 7


@pytest.mark.parametrize("wrong", [
    {"max": "-1"}, {"max": "x"}, {"epoch-from": "soon"}, {"sort-by": "colour"}, {"sort-by": "id up"}, {"skip": "-3"},
])  # fmt: skip
def test_what_cannot_be_used_is_said(wrong: dict[str, str]) -> None:
    with pytest.raises(QueryInvalid, match=next(iter(wrong))):
        parse_query(wrong)


@given(
    st.lists(st.tuples(st.text("abc", max_size=3), st.integers(0, 5), st.integers(0, 5))), st.integers(1, 4),
    st.sampled_from(["id", "epoch", "timestamp"]), st.booleans(),
)  # fmt: skip
def test_pages_together_are_all_of_it_once_and_in_order(
    rows: list[tuple[str, int, int]], most: int, field: str, descending: bool
) -> None:
    schedules = [make_schedule_json(f"{id_}{n}", epoch, stamp) for n, (id_, epoch, stamp) in enumerate(rows)]
    wanted = Query(field=field, descending=descending, rows_max=most)
    paged: list[str] = []
    while len(paged) < len(schedules):
        found = search(schedules, wanted._replace(skip=len(paged)))
        assert found.total == len(schedules)
        assert 0 < len(found.page) <= most
        paged += ids(found)
    assert paged == ids(search(schedules, wanted._replace(rows_max=1_000)))
    assert sorted(paged) == sorted(each["id"] for each in schedules)
