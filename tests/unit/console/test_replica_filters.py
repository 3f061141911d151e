"""A filter in SQL means the same letters as it does of one letter in Python."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retry.delay_queue import entry_keys, envelopes
from retry.operations.found_letter import FoundLetter, make_parked_letter, make_waiting_letter
from retry.operations.letter_filter import predicate
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.syntax import Filter, Glob, Moment, Range, Span, Term, all_of, any_of, make_glob, negate
from retry.policies.registry import Registry
from retry.record import Headers
from tests.support.replicas import HOUR_MS, NOW_MS, OWN, GivenMessage, GivenReplica, entry, failure, make_parked_record

ALPHABET = "aAbß.*İ\0 17é?[\"%_"
TEXTS = st.text(st.sampled_from(ALPHABET), max_size=5)
NAMES = st.sampled_from(["tenant", "trace", "app-version", "service-version"])
TIMES = st.sampled_from([NOW_MS - HOUR_MS, NOW_MS - 1, NOW_MS, NOW_MS + 1, NOW_MS + HOUR_MS])


@st.composite
def headers(draw: st.DrawFn) -> Headers:
    """Draw headers as a consumer's framework and the service write them, or some of them."""
    found: Headers = []
    for name in ("kafka_dlt-exception-fqcn", "kafka_dlt-exception-cause-fqcn", "kafka_dlt-exception-message"):
        if draw(st.booleans()):
            found.append((name, draw(TEXTS).encode()))
    found += [(draw(NAMES), draw(st.none() | TEXTS.map(str.encode))) for _ in range(draw(st.integers(0, 2)))]
    if draw(st.booleans()):
        found.append(("retry-attempt", draw(st.sampled_from([b"1", b"2", b"no"]))))
    if draw(st.booleans()):
        found.append(("retry-first-failed-ms", b"%d" % draw(TIMES)))
    if draw(st.booleans()):
        found.append(("retry-policy", draw(st.sampled_from([b"a/orders.DLT", b"b/orders.DLT"]))))
    return found


KEYS = st.none() | st.binary(max_size=2) | TEXTS.map(str.encode)
LETTERS = st.lists(st.tuples(headers(), KEYS, TIMES, st.sampled_from(["a", "b", "ab"]), st.booleans()), min_size=1, max_size=8)
GLOBS = st.lists(TEXTS, min_size=1, max_size=3).map(make_glob)
FIELDS = st.sampled_from(["team", "exception", "cause", "message", "topic", "consumer-group", "version", "key", "fingerprint"])


def between(bounds: st.SearchStrategy) -> st.SearchStrategy[Range]:
    """Any range, also one that begins behind its end."""
    return st.builds(Range, bounds | st.none(), bounds | st.none()).filter(lambda found: found != Range(None, None))


TERMS = st.one_of(
    st.builds(lambda field, value: Term(field, "", value), FIELDS, GLOBS),
    st.builds(lambda name, value: Term("header", name, value), NAMES, GLOBS),
    st.sampled_from(["waiting", "parked"]).map(lambda state: Term("state", "", Glob((state,)))),
    st.builds(lambda field, value: Term(field, "", value), st.sampled_from(["attempt", "partition"]), between(st.integers(0, 3))),
    between(st.sampled_from([0, 1, HOUR_MS]).map(Span)).map(lambda value: Term("age", "", value)),
    st.builds(
        lambda field, value: Term(field, "", value), st.sampled_from(["due", "failed"]),
        between(st.builds(Moment, st.sampled_from([0, 1, -1, HOUR_MS]), st.just(True))),
    ),
)
FILTERS: st.SearchStrategy[Filter] = st.recursive(
    TERMS,
    lambda inner: st.one_of(
        inner.map(negate), st.lists(inner, max_size=3).map(all_of), st.lists(inner, min_size=1, max_size=3).map(any_of)
    ),
    max_leaves=6,
)


def fold_letters(replica: GivenReplica, letters: list[tuple[Headers, bytes | None, int, str, bool]]) -> list[FoundLetter]:
    """Letters in a replica; and as predicates see them."""
    found = []
    for offset, (told, key, at_ms, team, waits) in enumerate(letters):
        if waits:
            lane = entry_keys.lane(team, "orders.DLT", "orders.retry")
            place = entry_keys.build_key(at_ms, entry_keys.build_key_stem("orders.DLT", 0), offset, lane)
            envelope = envelopes.encode(envelopes.Entry("orders.retry", key, b"v", told, at_ms, team, at_ms))
            replica.fold(OWN.changelog, (place, envelope))
            found.append(make_waiting_letter(entry_keys.read_source(place), envelopes.decode(envelope), Registry(), ""))
        else:
            (at,) = replica.fold(OWN.parked, (key, b"v", told), at_ms=at_ms)
            found.append(make_parked_letter(GivenMessage(OWN.parked, 0, at, key, b"v", told, at_ms), Registry()))
    return found


@example([([("retry-policy", b"a/orders.DLT")], b"a\0b", NOW_MS, "a", False)], [Term("team", "", Glob(("", "\0")))], None)
@example([([], b"a\0b", NOW_MS, "a", True)], [Term("key", "", Glob(("a", "b"))), Term("key", "", Glob(("a\0", "")))], None)
@given(LETTERS, st.lists(FILTERS, min_size=1, max_size=6), st.sampled_from([None, frozenset({"a"}), frozenset({"b", "ab"})]))
def test_sql_means_what_the_predicate_means(
    letters: list[tuple[Headers, bytes | None, int, str, bool]], filters: list[Filter], scope: frozenset[str] | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        replica = GivenReplica(Path(folder))
        found = fold_letters(replica, letters)
        replica.finish()
        seen = [letter for letter in found if scope is None or letter.team in scope]
        for letter_filter in filters:
            holds = predicate.build_predicate(letter_filter, NOW_MS)
            wanted = {letter.name for letter in seen if letter.state in predicate.list_states(letter_filter) and holds(letter)}
            page = replica.letters(letter_filter, scope)
            assert {row.name for row in page.rows} == wanted, str(letter_filter)
            assert (page.count, page.is_capped) == (len(wanted), False), str(letter_filter)
        replica.file.close()


@pytest.mark.parametrize("text", ["", "team:a", "key:k*", "message:late", "-team:b", "header.tenant:acme", "due:<1h"])
@pytest.mark.parametrize("listed", [True, False], ids=["looked at one by one", "walked over"])
@pytest.mark.parametrize("cells_max", [0, 1_000], ids=["in due order", "cell by cell"])
def test_however_letters_are_found_they_are_the_same(
    text: str, cells_max: int, listed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = GivenReplica(tmp_path)
    given = failure("a.B", "order 17 is late", ("tenant", b"acme"))
    records = [entry(n, NOW_MS + n * 60_000, "ab"[n % 2], given if n % 3 else failure("c.D", "no")) for n in range(200)]
    replica.fold(OWN.changelog, *records)
    replica.finish()
    whole = replica.names(text)
    assert len(whole) > 20
    monkeypatch.setattr("retry.console.reading.letter_search._CELLS_MAX", cells_max)
    monkeypatch.setattr("retry.console.reading.letter_search._FIRST_STRETCH", 5)
    if not listed:
        monkeypatch.setattr("retry.console.reading.letter_search.COUNT_MAX", 20)
    found: list[str] = []
    page = replica.letters(text, limit=7)
    while True:
        found += [row.name for row in page.rows]
        if page.after is None:
            break
        page = replica.letters(text, after=page.after, limit=7)
    assert found == whole


def list_names(replica: GivenReplica, text: str) -> list[str]:
    """Names of all letters that a filter means, three at a time."""
    page = replica.letters(text, limit=3)
    found = [row.name for row in page.rows]
    while page.after is not None:
        page = replica.letters(text, after=page.after, limit=3)
        found += [row.name for row in page.rows]
    return found


@pytest.mark.parametrize("text", ["team:t*", "due:<10s", "due:5s..20s team:t1*", "due:>5s", "due:>5s due:<8s", "due:>1h"])
def test_letters_of_many_cells_come_in_order_however_many_are_due_at_once(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = GivenReplica(tmp_path)
    records = [entry(n, NOW_MS + n * 7 % 120 // 4 * 1_000, f"t{n % 23}") for n in range(240)]
    replica.fold(OWN.changelog, *records)
    replica.fold(OWN.parked, *(make_parked_record(n) for n in range(5)))
    replica.finish()
    by_cells, counted = list_names(replica, text), replica.letters(text, limit=3)
    monkeypatch.setattr("retry.console.reading.letter_search._CELLS_MAX", 0)
    assert by_cells == replica.names(text) == list_names(replica, text)
    assert (counted.count, counted.is_capped) == (len(by_cells), False)
    assert bool(by_cells) == (text != "due:>1h")


def test_letters_that_are_due_are_counted_as_far_as_counts_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = walked_over(tmp_path, monkeypatch, count_max=20, within_s=0.0)
    for text, wanted in {"due:<18ms": (19, False), "due:<19ms": (20, False), "due:<20ms": (20, True)}.items():
        page = replica.letters(text, limit=5)
        assert (page.count, page.is_capped) == wanted, text


@pytest.mark.parametrize("text", ["message:late", 'message:"order 17 "', 'message:"17 is"', "message:early", "message:er*late"])
def test_what_most_messages_have_in_common_finds_no_fewer(text: str, tmp_path: Path) -> None:
    replica = GivenReplica(tmp_path)
    told = [f"order {n} is {'early' if n % 100 == 17 else 'late'}" for n in range(1_500)]
    replica.fold(OWN.changelog, *(entry(n, headers=failure(message=message)) for n, message in enumerate(told)))
    replica.finish()
    found = {int(name.rpartition("/")[2]) for name in list_names(replica, text)}
    letter_filter = predicate.build_predicate(parse(text), NOW_MS)
    letters = (make_waiting_letter(entry_keys.read_source(key), envelopes.decode(value), Registry(), "") for key, value in
               (entry(n, headers=failure(message=message)) for n, message in enumerate(told)))  # fmt: skip
    assert found == {n for n, letter in enumerate(letters) if letter_filter(letter)}
    assert found


def walked_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, count_max: int, within_s: float) -> GivenReplica:
    """2,000 letters, of which a search looks at some at a time, for so long."""
    replica = GivenReplica(tmp_path)
    replica.fold(OWN.changelog, *(entry(n, NOW_MS + n) for n in range(2_000)))
    replica.finish()
    for name, value in {"COUNT_MAX": count_max, "_FIRST_STRETCH": 20, "PAGE_S": within_s, "COUNT_S": within_s}.items():
        monkeypatch.setattr(f"retry.console.reading.letter_search.{name}", value)
    return replica


def test_a_search_that_takes_long_says_how_far_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = walked_over(tmp_path, monkeypatch, count_max=20, within_s=0.0)
    pages, page = 1, replica.letters("key:*1999", limit=5)
    assert (page.rows, page.is_partial, page.is_capped, page.nothing_matches) == ([], True, True, None)
    found = page.rows
    while page.after is not None:
        pages, page = pages + 1, replica.letters("key:*1999", after=page.after, limit=5)
        found += page.rows
    assert [row.offset for row in found] == [1999]
    assert pages > 2


def test_the_first_page_of_a_walk_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = walked_over(tmp_path, monkeypatch, count_max=100, within_s=3_600.0)
    for limit in (1, 5, 19, 20, 21):
        page = replica.letters("key:*99", limit=limit)
        assert (len(page.rows), page.count, page.is_capped) == (min(limit, 20), 20, False)
    assert replica.letters("key:*99", after=replica.letters("key:*99", limit=5).after, limit=5).count == 20


def test_a_filter_is_data(tmp_path: Path) -> None:
    replica = GivenReplica(tmp_path)
    replica.fold(OWN.changelog, entry(1))
    replica.finish()
    for text in ("team:\"x' OR 1=1 --\"", 'message:"\\"" ', 'key:"a) OR (1"', 'message:"NEAR(a b)"', "key:%", "team:_ayments"):
        assert replica.letters(parse(text)).count == 0
    assert replica.letters(Term("team", "", Glob(("\ud800",)))).count == 0
    assert replica.letters(negate(Term("key", "", Glob(("\ud800", ""))))).count == 1
