"""The list of failures: its orders and pages, its states, what is counted beside it, and pairs that look the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from retry import clock
from retry.console.folding import notes
from retry.console.folding.notes import NOTE, RESOLVED, Apart, Note, Resolved
from retry.console.reading import facets, group_order
from retry.console.reading.group_list import GroupPage, GroupsQuery, is_near
from retry.console.reading.group_order import COLUMNS, Order
from retry.console.reading.groups import NEW_MS
from retry.console.reading.now import NowQuery
from retry.console.rows import FailureState
from retry.console.web.failures import FailuresView, build_facets, read_view
from retry.errors import CursorStale
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.syntax import EVERYTHING
from retry.policies.registry import Registry
from tests.support.plans import registry_of
from tests.support.replicas import NOW_MS, OWN, GivenReplica, entry, failure, make_parked_record

GROUP_HEADER = "kafka_dlt-original-consumer-group"
POLICIES = """
teams:
  payments: {topics: [{dead_letters: orders.DLT, retry_to: orders.retry}]}
  shipping: {topics: [{dead_letters: labels.DLT, retry_to: labels.retry}]}
"""


@pytest.fixture
def replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GivenReplica:
    monkeypatch.setattr(clock, "wall_ms", lambda: NOW_MS)
    made = GivenReplica(tmp_path, registry_of(POLICIES))
    made.finish()
    return made


@pytest.fixture
def many(replica: GivenReplica) -> GivenReplica:
    """Twelve kinds of two teams, some alike in each column, and some of which nothing is known there."""
    number = 0
    for kind in range(12):
        by = [(GROUP_HEADER, b"group-%d" % (kind % 4))] if kind % 3 else []
        headers = failure(f"a.{'ZYX'[kind % 3]}{chr(65 + kind)}", f"kind {chr(97 + kind)} failed", *by)
        for _ in range(1 + kind // 2):
            number += 1
            replica.fold(OWN.changelog, entry(number, team=("payments", "shipping")[kind % 2], headers=headers))
        if kind % 4 == 0:
            replica.fold(OWN.parked, make_parked_record(1_000 + kind, headers=headers))
    for n, group in enumerate(replica.groups()):
        if n % 3 == 0:
            note(replica, NOTE + group.id, Note(("Ann", "bob")[n % 2], "", "", "ann", 1))
    return replica


def note(replica: GivenReplica, key: str, record: notes.Record) -> None:
    replica.fold(OWN.notes, (key.encode(), notes.encode_note(record)))


def list_pages(replica: GivenReplica, order: Order, limit: int) -> list[str]:
    found, after = list[str](), None
    while True:
        page = replica.group_page(GroupsQuery(None, EVERYTHING, order=order, after=after, limit=limit))
        found += [group.id for group in page.rows]
        if (after := page.after) is None:
            return found


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("is_descending", [False, True])
def test_pages_of_each_order_follow_each_other_without_a_gap(many: GivenReplica, column: str, is_descending: bool) -> None:
    order = Order(column, is_descending)
    whole = list_pages(many, order, 100)
    assert len(whole) == len(set(whole)) == 12
    assert list_pages(many, order, 5) == whole
    assert list_pages(many, order, 1) == whole


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        ("letters", lambda group: group.count), ("waiting", lambda group: group.waiting), ("parked", lambda group: group.parked),
        ("team", lambda group: group.teams[0]), ("failure", lambda group: f"{group.cause} {group.message}".casefold()),
        ("consumer-group", lambda group: group.consumer_groups[0] if group.consumer_groups else None),
        ("owner", lambda group: group.owner.casefold() or None), ("last", lambda group: group.last_ms),
    ],
)  # fmt: skip
def test_rows_are_in_the_order_of_what_they_show_and_what_is_not_known_comes_last(
    many: GivenReplica, column: str, shown: object
) -> None:
    for is_descending in (False, True):
        rows = many.group_page(GroupsQuery(None, EVERYTHING, order=Order(column, is_descending))).rows
        values = [shown(group) for group in rows]  # type: ignore[operator]
        known = [value for value in values if value is not None]
        assert len(set(known)) > 1 or column == "last"
        assert known == sorted(known, reverse=is_descending)
        assert values[len(known) :] == [None] * (len(values) - len(known))


def test_a_page_goes_on_where_the_last_row_was_although_that_has_gone(many: GivenReplica) -> None:
    order = Order("failure", False)
    whole = list_pages(many, order, 100)
    first = many.group_page(GroupsQuery(None, EVERYTHING, order=order, limit=4))
    note(many, RESOLVED + whole[3], Resolved("ann", NOW_MS + 1))
    rest = many.group_page(GroupsQuery(None, EVERYTHING, order=order, after=first.after))
    assert [group.id for group in rest.rows] == whole[4:]


def test_a_cursor_is_of_one_order_and_state_alone(many: GivenReplica) -> None:
    after = many.group_page(GroupsQuery(None, EVERYTHING, limit=4)).after
    for other in (
        {"order": Order("team", False)}, {"order": Order("letters", False)}, {"show": FailureState.NEW},
        {"letter_filter": parse("team:payments")}, {"scope": frozenset({"payments"})},
    ):  # fmt: skip
        with pytest.raises(CursorStale):
            many.group_page(GroupsQuery(None, EVERYTHING, after=after, limit=4)._replace(**other))  # type: ignore[arg-type]
    place = group_order.Place(False, "text", "f00d")
    with pytest.raises(CursorStale):
        Order("waiting", True).find_begin([group_order.Place(False, 1, "aa")], place)


def test_a_failure_is_new_for_a_day_then_goes_on_and_may_be_resolved_and_come_again(replica: GivenReplica) -> None:
    replica.fold(OWN.changelog, *(entry(n, headers=failure(f"a.{kind}")) for n, kind in enumerate("ABC")))
    one, two, three = sorted(group.id for group in replica.groups())
    note(replica, RESOLVED + two, Resolved("ann", NOW_MS + 1))
    note(replica, RESOLVED + three, Resolved("ann", NOW_MS - 1))

    def states(now_ms: int) -> dict[str, FailureState]:
        pages = [replica.group_page(GroupsQuery(None, EVERYTHING, show=show), now_ms) for show in FailureState]
        for show, page in zip(FailureState, pages, strict=True):
            assert {group.state for group in page.rows} <= {show}
            assert page.states[show] == len(page.rows)
        with replica.readers.reading(0.0) as connection:
            new = NowQuery(connection, None, Registry(), {}, now_ms).load_now([]).new_groups
        assert new == pages[0].states[FailureState.NEW], "Now and Failures say the same"
        return {group.id: group.state for page in pages for group in page.rows}

    later = {two: FailureState.RESOLVED, three: FailureState.CAME_AGAIN}
    assert states(NOW_MS + NEW_MS - 1) == {one: FailureState.NEW, **later}
    assert states(NOW_MS + NEW_MS) == {one: FailureState.ONGOING, **later}
    assert {group.id for group in replica.groups()} == {one, three}


def count_by(page: GroupPage, field: str) -> dict[str, int]:
    return {each.value: each.letters for facet in page.facets or () if facet.field == field for each in facet.values}


@pytest.mark.parametrize(
    "words", ["", "team:payments", "message:failed -team:shipping", "state:parked", "exception:a.ZA or attempt:3"]
)
def test_facets_count_the_letters_that_the_filter_would_leave(many: GivenReplica, words: str) -> None:
    page = many.group_page(GroupsQuery(None, parse(words)))
    letters = sum(group.count for group in page.rows)
    assert (page.waiting + page.parked, sum(count_by(page, "team").values())) == (letters, letters)
    for facet in build_facets(parse(words), page.facets or ()):
        for link in facet.links:
            if not link.is_on:
                narrowed = many.group_page(GroupsQuery(None, parse(link.q)))
                assert (facet.field, link.value, link.letters) == (facet.field, link.value, narrowed.waiting + narrowed.parked)


def test_facets_are_of_the_failures_that_are_listed_and_of_the_viewers_teams(many: GivenReplica) -> None:
    page = many.group_page(GroupsQuery(frozenset({"payments"}), EVERYTHING))
    assert set(count_by(page, "team")) == {"payments"}
    note(many, RESOLVED + page.rows[0].id, Resolved("ann", NOW_MS + 1))
    left = many.group_page(GroupsQuery(frozenset({"payments"}), EVERYTHING))
    assert count_by(left, "team")["payments"] == count_by(page, "team")["payments"] - page.rows[0].count


def test_of_many_values_those_with_most_letters_are_shown_and_the_others_counted(many: GivenReplica) -> None:
    page = many.group_page(GroupsQuery(None, EVERYTHING))
    (found,) = (facet for facet in page.facets or () if facet.field == "exception")
    assert (len(found.values), found.more) == (facets.VALUES_MAX, 12 - facets.VALUES_MAX)
    assert [each.letters for each in found.values] == sorted((each.letters for each in found.values), reverse=True)


def test_an_exception_counts_once_where_it_is_cause_too_and_what_frameworks_throw_is_no_value(replica: GivenReplica) -> None:
    around = "org.springframework.kafka.listener.ListenerExecutionFailedException"
    wrapped = failure(around, "x", ("kafka_dlt-exception-cause-fqcn", b"a.B"))
    replica.fold(OWN.changelog, entry(1, headers=wrapped), entry(2, headers=failure("a.B")))
    page = replica.group_page(GroupsQuery(None, EVERYTHING))
    assert count_by(page, "exception")["a.B"] == 2
    assert not any("ListenerExecution" in value for value in count_by(page, "exception"))


def test_where_counting_takes_too_long_the_list_is_there_without_facets(
    many: GivenReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facets, "_STEPS", 1)
    with many.readers.reading(0.0) as connection:
        assert facets.count_facets(connection, {1: 1}, 0.0) is None
        assert facets.count_facets(connection, {1: 1}, 60.0)


@pytest.mark.parametrize(
    ("words", "field", "value", "becomes"),
    [
        ("", "team", "payments", "team:payments"),
        ("state:parked", "topic", "a b", 'state:parked topic:"a b"'),
        ("team:a or team:b", "attempt", "3", "(team:a or team:b) attempt:3"),
        ("team:payments attempt:3 age:<1d", "attempt", "3", "team:payments age:..1d"),
        ("team:payments", "team", "payments", ""),
        ("exception:*Timeout", "exception", "a.Timeout", "exception:*Timeout exception:a.Timeout"),
        ('topic:"odd*"', "topic", 'odd\\* "x"', 'topic:odd* topic:"odd\\\\\\* \\"x\\""'),
    ],
)  # fmt: skip
def test_a_click_on_a_value_adds_its_term_or_takes_it_out(words: str, field: str, value: str, becomes: str) -> None:
    facet = facets.Facet(field, (facets.FacetValue(value, 7),), 0)
    (links,) = (each for each in build_facets(parse(words), [facet]) if each.field == field)
    (link,) = (each for each in links.links if each.value == value)
    assert (link.letters, parse(link.q)) == (7, parse(becomes))
    assert link.is_on == (len(becomes) < len(words))


def test_a_value_that_the_filter_asks_for_can_be_taken_out_although_nothing_has_it() -> None:
    (team,) = build_facets(parse("team:nobody"), [])
    assert [(link.value, link.letters, link.q, link.is_on) for link in team.links] == [("nobody", None, "", True)]


def test_an_address_says_what_is_shown_and_leaves_out_what_goes_without_saying() -> None:
    assert FailuresView().link() == "/failures"
    view = read_view({"q": "team:a", "show": "new", "sort": "-team", "after": "x"})
    assert view.link() == "/failures?q=team%3Aa&show=new&sort=-team"
    assert view.link(after="y", q="") == "/failures?show=new&sort=-team&after=y"
    assert (view.link_by("team"), view.link_by("last")) == (
        "/failures?q=team%3Aa&show=new&sort=team", "/failures?q=team%3Aa&show=new&sort=-last",
    )  # fmt: skip


NEAR = [
    ("posting # failed", "posting #: failed"), ("deadlock detected on relation #", "deadlock detected: on relation # again"),
    ("no answer for # within # ms", "no answer for # within # s"),
]  # fmt: skip
FAR = [
    ("Connection refused", "Connection reset"), ("status code 503 from the bank", "status code 404 from the bank"),
    ("user # not found", "order # not found"), (None, None), ("#", "#: #"), ("late", None),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), [*NEAR, *FAR])
def test_messages_are_near_where_hardly_a_word_differs(one: str | None, other: str | None) -> None:
    assert is_near(one, other) == is_near(other, one) == ((one, other) in NEAR)


def test_two_groups_of_a_class_with_near_messages_are_offered_until_somebody_says_that_they_differ(replica: GivenReplica) -> None:
    alike, other = ("posting of the order failed", "posting of the order: failed again"), "the bank is closed"
    replica.fold(OWN.changelog, *(entry(n, headers=failure("a.A", alike[n == 3])) for n in range(4)))
    replica.fold(OWN.changelog, entry(5, headers=failure("b.B", alike[0])), entry(6, headers=failure("a.A", other)))
    (pair,) = replica.group_page(GroupsQuery(None, EVERYTHING)).lookalikes
    assert (pair.cause, pair.into.message, pair.into.letters, pair.other.letters) == ("a.A", alike[0], 3, 1)
    assert (pair.into.teams, len(replica.groups())) == (("payments",), 4)
    assert replica.group_page(GroupsQuery(frozenset({"nobody"}), EVERYTHING)).lookalikes == ()
    note(replica, notes.build_apart_key(pair.other.id, pair.into.id), Apart("ann", 1))
    assert replica.group_page(GroupsQuery(None, EVERYTHING)).lookalikes == ()
    assert replica.unreadable == 0
