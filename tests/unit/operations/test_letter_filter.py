"""A filter as it is read: what it means, how it is written again, and where each mistake is."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from retry.errors import FilterInvalid
from retry.operations.letter_filter.fields import EXAMPLES
from retry.operations.letter_filter.parse import BYTES_MAX, DEPTH_MAX, parse
from retry.operations.letter_filter.syntax import (
    EVERYTHING,
    AllOf,
    AnyOf,
    Filter,
    Glob,
    Moment,
    Not,
    Range,
    Span,
    Term,
    all_of,
    any_of,
    make_glob,
    negate,
)

HOUR_MS = 3_600_000
A, B, C = (Term("team", "", Glob((name,))) for name in "abc")
ALPHABET = 'ab019 \t\n"\\*()-:=.<>$é\u2028\x00\ud800'
WRITTEN = st.text(st.sampled_from(ALPHABET), max_size=20)
PIECES = st.sampled_from([*EXAMPLES.values(), "or", "(", ")", "-", " ", '"', "*"])

globs = st.lists(st.text(st.sampled_from(ALPHABET), max_size=6), min_size=1, max_size=4).map(make_glob)
names = st.text(st.sampled_from("ab-_.é"), min_size=1, max_size=6)
steps = st.text(st.sampled_from("ab0-é"), min_size=1, max_size=4)
paths = st.lists(steps, min_size=1, max_size=3).map(lambda path: "$." + ".".join(path))


def ranges(bounds: st.SearchStrategy) -> st.SearchStrategy[Range]:
    pairs = st.lists(bounds, min_size=2, max_size=2).map(lambda two: sorted(two, key=lambda b: b if isinstance(b, int) else b.ms))
    whole = pairs.map(lambda two: Range(two[0], two[1]))
    return whole | bounds.map(lambda low: Range(low, None)) | bounds.map(lambda high: Range(None, high))


texts = st.sampled_from(["team", "exception", "cause", "message", "topic", "consumer-group", "version", "key", "fingerprint"])
durations = st.integers(0, 3_653 * 24 * HOUR_MS)
moments = st.one_of(
    st.integers(0, 253_402_300_799_999).map(lambda ms: Moment(ms, False)),
    st.builds(lambda ms, sign: Moment(ms * sign, True), durations, st.sampled_from([1, -1])),
)
numbered = st.sampled_from(["attempt", "partition"])
terms = st.one_of(
    st.builds(lambda field, value: Term(field, "", value), texts, globs),
    st.builds(lambda name, value: Term("header", name, value), names, globs),
    st.builds(lambda path, value: Term("value", path, value), paths, globs),
    st.sampled_from(["waiting", "parked"]).map(lambda state: Term("state", "", Glob((state,)))),
    st.builds(lambda field, value: Term(field, "", value), numbered, ranges(st.integers(0, 2**31 - 1))),
    ranges(durations.map(Span)).map(lambda value: Term("age", "", value)),
    st.builds(lambda field, value: Term(field, "", value), st.sampled_from(["due", "failed"]), ranges(moments)),
)
filters: st.SearchStrategy[Filter] = st.recursive(
    terms,
    lambda inner: st.one_of(
        inner.map(negate),
        st.lists(inner, min_size=1, max_size=3).map(all_of),
        st.lists(inner, min_size=1, max_size=3).map(any_of),
    ),
    max_leaves=6,
)


@given(filters)
def test_a_filter_is_read_back_from_what_it_is_written_as(letter_filter: Filter) -> None:
    written = str(letter_filter)
    assume(len(written.encode("utf-8", "surrogatepass")) <= BYTES_MAX)
    assert parse(written) == letter_filter


@given(st.text(max_size=60) | WRITTEN | st.lists(PIECES, max_size=20).map("".join))
@example("(" * BYTES_MAX)
@example("-(" * 9)
@example("\ud800" * BYTES_MAX)
def test_a_text_is_a_filter_or_a_mistake_in_a_column_that_it_has(text: str) -> None:
    found: Filter | FilterInvalid
    try:
        found = parse(text)
    except FilterInvalid as invalid:
        found = invalid
    if isinstance(found, FilterInvalid):
        assert 1 <= found.column <= len(text) + 1
        assert f"column {found.column}:" in str(found)
    else:
        assert parse(str(found)) == found


@pytest.mark.parametrize(
    ("text", "letter_filter"),
    [
        ("", EVERYTHING),
        (" \t\n", EVERYTHING),
        ("team:a", A),
        ("team:a team:b", AllOf((A, B))),
        ("team:a or team:b", AnyOf((A, B))),
        ("team:a OR team:b", AnyOf((A, B))),
        ("team:a team:b or team:c", AnyOf((AllOf((A, B)), C))),
        ("team:a (team:b or team:c)", AllOf((A, AnyOf((B, C))))),
        ("-team:a", Not(A)),
        ("-(team:a or team:b) team:c", AllOf((Not(AnyOf((A, B))), C))),
        ("-(-team:a)", A),
        ("((team:a))", A),
        ('team:"a"', A),
        ('key:""', Term("key", "", Glob(("",)))),
        ("key:*", Term("key", "", Glob(("", "")))),
        ("key:a**b*", Term("key", "", Glob(("a", "b", "")))),
        (r'key:"a\*\"\\*"', Term("key", "", Glob(('a*"\\', "")))),
        (r"key:C:\temp", Term("key", "", Glob((r"C:\temp",)))),
        ("key:-1", Term("key", "", Glob(("-1",)))),
        ("team:or", Term("team", "", Glob(("or",)))),
        ("header.a.b:x:y=z", Term("header", "a.b", Glob(("x:y=z",)))),
        ("value.$.a.0=x=y", Term("value", "$.a.0", Glob(("x=y",)))),
        ("attempt:3", Term("attempt", "", Range(3, 3))),
        ("attempt:3..", Term("attempt", "", Range(3, None))),
        ("attempt:..3", Term("attempt", "", Range(None, 3))),
        ("attempt:>3", Term("attempt", "", Range(4, None))),
        ("attempt:<=3", Term("attempt", "", Range(None, 3))),
        ("attempt:<3", Term("attempt", "", Range(None, 2))),
        ("age:>2h", Term("age", "", Range(Span(2 * HOUR_MS), None))),
        ("age:1h..2h", Term("age", "", Range(Span(HOUR_MS), Span(2 * HOUR_MS)))),
        ("due:<10m", Term("due", "", Range(None, Moment(600_000, True)))),
        ("due:-10m..now", Term("due", "", Range(Moment(-600_000, True), Moment(0, True)))),
        ("due:>1970-01-01T02:00+01:00", Term("due", "", Range(Moment(HOUR_MS, False), None))),
        ("due:3600000..1h", Term("due", "", Range(Moment(HOUR_MS, False), Moment(HOUR_MS, True)))),
    ],
)
def test_what_a_filter_means(text: str, letter_filter: Filter) -> None:
    assert parse(text) == letter_filter


@pytest.mark.parametrize(
    ("text", "column", "instead"),
    [
        ("timeout", 1, "message:timeout"),
        ("team:a  timeout", 9, "message:timeout"),
        ('"card declined"', 1, 'message:"card declined"'),
        ("team", 1, "team:payments"),
        ("team:a and team:b", 8, "leave it out"),
        ("not team:a", 1, "-team:payments"),
        ("team:", 6, "team:payments"),
        ("team: a", 6, "team:payments"),
        ("tema:a", 1, "did you mean team?"),
        ("zzz:a", 1, "write team:payments"),
        ("team.x:a", 1, "write team:payments"),
        (":a", 1, "write team:payments"),
        ("team=a", 5, "write : here"),
        ("header:a", 1, "header.tenant:acme"),
        ("header.:a", 1, "header.tenant:acme"),
        ("value:a", 1, "value.$.order.id=4711"),
        ("value.a=1", 1, "value.$.order.id=4711"),
        ("value.$..a=1", 1, "value.$.order.id=4711"),
        ("value.$.a:1", 10, "write = here"),
        ("state:gone", 7, "state:waiting or state:parked"),
        ("state:park*", 7, "state:waiting or state:parked"),
        ("or team:a", 1, "team:payments or team:billing"),
        ("team:a or", 10, "team:payments or team:billing"),
        ("team:a or or team:b", 11, "team:payments or team:billing"),
        ("()", 2, "team:payments or team:billing"),
        ("(team:a", 1, "write )"),
        ("team:b (team:a", 8, "write )"),
        ("team:a)", 7, "needs quotes"),
        ("message:f(x)", 10, "needs quotes"),
        ('team:a"b"', 7, "needs quotes"),
        ('team:"a"b', 9, "needs quotes"),
        ('team:"a', 6, 'write "'),
        (r'team:"a\n"', 8, r"write \\"),
        ('team:"a\\', 8, r"write \\"),
        ("-", 2, "-team:payments"),
        ("- team:a", 2, "-team:payments"),
        ("--team:a", 2, "-team:payments"),
        ("(" * (DEPTH_MAX + 1) + "team:a", DEPTH_MAX + 1, "fewer"),
        ("attempt:x", 9, "attempt:3.."),
        ("attempt:..", 9, "attempt:3.."),
        ("attempt:5..2", 9, "attempt:3.."),
        ("attempt:2..x", 12, "attempt:3.."),
        ("attempt:>", 10, "attempt:3.."),
        ("attempt:<0", 9, "attempt:3.."),
        ("attempt:2147483648", 9, "attempt:3.."),
        ("attempt:²", 9, "attempt:3.."),
        ("age:2h", 5, "age:>2h"),
        ("age:>soon", 6, "age:>2h"),
        ("age:2h..1h", 5, "age:1h..2h"),
        ("due:10m", 5, "due:<10m"),
        ("due:<soon", 6, "10m"),
        ("due:<2026-02-30", 6, "2026-01-31"),
        ("due:<1969-12-31", 6, "2026-01-31"),
        ("due:10m..now", 5, "due:now..10m"),
        ("team:" + "é" * 600, 515, "1,024 bytes"),
    ],
)  # fmt: skip
def test_a_mistake_names_its_column_and_what_to_write_instead(text: str, column: int, instead: str) -> None:
    with pytest.raises(FilterInvalid) as raised:
        parse(text)
    assert (raised.value.column, instead in raised.value.reason) == (column, True), raised.value


@pytest.mark.parametrize("example", EXAMPLES.values())
def test_what_a_mistake_proposes_is_a_filter(example: str) -> None:
    assert isinstance(parse(example, groups=True), Term)


def reference(parts: tuple[str, ...], text: str) -> bool:
    """Whether a glob matches, tried out in every way."""
    if len(parts) == 1:
        return text == parts[0]
    rests = (text[at:] for at in range(len(parts[0]), len(text) + 1))
    return text.startswith(parts[0]) and any(reference(parts[1:], rest) for rest in rests)


short = st.text("ab", max_size=3)


@given(st.lists(short, min_size=1, max_size=4).map(make_glob), st.text("ab", max_size=8))
@example(make_glob(["a", "a"]), "a")
@example(make_glob(["ab", "ba"]), "aba")
def test_a_glob_matches_what_it_could_match_in_any_way(wanted: Glob, text: str) -> None:
    assert wanted.compile_whole()(text) == reference(wanted.parts, text)
    around = make_glob(["", *wanted.parts, ""])
    assert wanted.anywhere()(text.upper()) == reference(around.parts, text)
