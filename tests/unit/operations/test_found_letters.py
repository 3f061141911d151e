"""Letters as filters ask for them, waiting and parked; the order that pages follow; and kinds of failures."""

from __future__ import annotations

import base64
import json
from collections import Counter
from math import inf
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from retry.__main__ import main
from retry.cli.letters import _build_row, _format_group, _format_letter
from retry.clock import iso
from retry.dead_letters import retry_headers
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.entry_keys import Source
from retry.delay_queue.envelopes import Entry
from retry.operations import found_letter, waiting_entries
from retry.operations.explain.search import LetterLocation
from retry.operations.found_letter import FoundLetter, group_failures
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.predicate import build_predicate, find_latest_due_ms, find_text, list_states
from retry.operations.letter_filter.syntax import Filter
from retry.operations.listing import Cursor
from retry.policies.policy_file import parse as policy_file
from retry.policies.registry import Registry
from retry.record import CREATE_TIME, Headers, Record
from retry.testing.memory_table import MemoryTable
from tests.support.process import ROOT
from tests.unit.operations.test_letter_filter import filters

NOW_MS, HOUR_MS = 1_795_300_000_000, 3_600_000
CAPTURED = [
    json.loads(line)
    for file in sorted((ROOT / "tests" / "fixtures" / "captured").glob("*.jsonl"))
    for line in file.read_text().splitlines()
]


def raw(coded: str | None) -> bytes | None:
    return None if coded is None else base64.b64decode(coded)


def own_headers(source: str, team: str = "shop", attempt: bytes = b"2", reason: bytes | None = None) -> Headers:
    first, due = b"%d" % (NOW_MS - 3 * HOUR_MS), b"%d" % NOW_MS
    headers = retry_headers.make_retry_headers(
        b"ab", attempt, source.encode(), due, f"{team}/{source.split('/')[0]}#1".encode(), first
    )
    return [*headers, (retry_headers.PARKED_REASON, reason)] if reason else headers


def entry_of(letter: dict[str, Any], reason: bytes | None = None) -> Entry:
    source = f"{letter['topic']}/{letter['partition']}/{letter['offset']}"
    headers = [(name, raw(coded)) for name, coded in letter["headers"]] + own_headers(source, reason=reason)
    return Entry("shop.retry", raw(letter["key"]), raw(letter["value"]), headers, letter["timestamp"], "shop", NOW_MS - HOUR_MS)


def make_waiting(letter: dict[str, Any], due_ms: int = NOW_MS + HOUR_MS) -> FoundLetter:
    where = Source(due_ms, letter["topic"], letter["partition"], letter["offset"])
    return found_letter.make_waiting_letter(where, entry_of(letter), Registry(), "")


def make_parked(letter: dict[str, Any]) -> FoundLetter:
    entry = entry_of(letter, b"rule")
    record = Record(("app-parked", 3, 7), entry.key, entry.value, entry.headers, (CREATE_TIME, letter["timestamp"]))
    return found_letter.make_parked_letter(record, Registry())


def quote_value(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("*", "\\*") + '"'


def fits_filter(text: str, letter: FoundLetter) -> bool:
    return build_predicate(parse(text), NOW_MS)(letter)


@pytest.mark.parametrize("found", [make_waiting, make_parked])
@pytest.mark.parametrize("letter", CAPTURED, ids=lambda letter: letter["name"])
def test_a_captured_letter_is_found_by_what_failed(letter: dict[str, Any], found: Any) -> None:
    expected, each = letter["expect"], found(letter)
    terms = {"exception": "exception", "cause": "cause", "consumer-group": "consumer_group"}
    for field, name in terms.items():
        told = getattr(each.failure, name)
        if name in expected:
            assert told == expected[name]
        if told is None:
            assert not fits_filter(f"{field}:*", each)
            continue
        assert fits_filter(f"{field}:{quote_value(told)}", each)
        assert not fits_filter(f"{field}:{quote_value(told + 'x')} or -{field}:*", each)
    if (message := each.failure.message) is not None and message:
        assert fits_filter(f"message:{quote_value(message[:200].upper())}", each)
        assert not fits_filter(f"message:{quote_value(message[:200] + 'no such end')}", each)
    number = each.fingerprint
    assert fits_filter(f"fingerprint:{number}" if number else "-fingerprint:*", each)
    key = raw(letter["key"])
    asked = "-key:*" if key is None else f"key:{quote_value(key.decode(errors='replace'))}"
    assert fits_filter(f"topic:{letter['topic']} {asked}", each)


LETTER = next(letter for letter in CAPTURED if letter["name"] == "retry topics are used up")


@pytest.mark.parametrize(
    ("text", "states_of"),
    [
        ("", "waiting parked"),
        ("state:waiting", "waiting"),
        ("-state:waiting", "parked"),
        ("team:shop", "waiting parked"),
        ("team:Shop", ""),
        ("topic:orders-* header.tag:new header.tag:urgent", "waiting parked"),
        ("header.note:*", ""),
        ("header.retry-parked-reason:rule", "parked"),
        ("attempt:2 attempt:2.. attempt:1..3", "waiting parked"),
        ("attempt:>2 or attempt:<2", ""),
        ("age:>2h age:3h..", "waiting parked"),
        ("age:<2h", ""),
        ("due:<2h due:now..", "waiting"),
        ("due:<10m", ""),
        (f"due:{NOW_MS + HOUR_MS}..{NOW_MS + HOUR_MS}", "waiting"),
        ("-due:..2h", "parked"),
    ],
)
def test_what_a_filter_asks_of_a_letter(text: str, states_of: str) -> None:
    assert [each.state for each in (make_waiting(LETTER), make_parked(LETTER)) if fits_filter(text, each)] == states_of.split()


@given(filters)
def test_a_state_that_is_not_looked_at_has_no_letter_that_is_meant(letter_filter: Filter) -> None:
    for each in (make_waiting(LETTER), make_parked(LETTER)):
        assert each.state in list_states(letter_filter) or not build_predicate(letter_filter, NOW_MS)(each)


@given(filters, st.integers(0, 253_402_300_799_999) | st.integers(NOW_MS - HOUR_MS, NOW_MS + HOUR_MS))
@example(parse("due:<10m or due:<20m team:*"), NOW_MS + 1_200_000)
@example(parse("-due:<10m"), NOW_MS + HOUR_MS)
def test_what_is_due_too_late_to_be_looked_at_is_not_meant(letter_filter: Filter, due_ms: int) -> None:
    assert due_ms <= find_latest_due_ms(letter_filter, NOW_MS) or not build_predicate(letter_filter, NOW_MS)(
        make_waiting(LETTER, due_ms)
    )


@pytest.mark.parametrize(
    ("text", "latest_ms"),
    [("", inf), ("due:<10m", NOW_MS + 600_000), ("due:>10m", inf), ("team:a due:<10m due:<20m", NOW_MS + 600_000),
     ("due:<10m or due:<20m", NOW_MS + 1_200_000), ("due:<10m or team:a", inf)],
)  # fmt: skip
def test_how_far_what_waits_is_looked_at(text: str, latest_ms: float) -> None:
    assert find_latest_due_ms(parse(text), NOW_MS) == latest_ms


@pytest.mark.parametrize(
    ("text", "looked_at"),
    [
        ("", {"waiting", "parked"}),
        ("state:parked", {"parked"}),
        ("-state:parked", {"waiting"}),
        ("-(state:parked team:a)", {"waiting", "parked"}),
        ("state:parked state:waiting", set()),
        ("state:parked or team:a", {"waiting", "parked"}),
    ],
)
def test_states_that_are_looked_at(text: str, looked_at: set[str]) -> None:
    assert list_states(parse(text)) == looked_at


class Opaque(FoundLetter):
    """A letter whose payload must not be asked for."""

    @property
    def value(self) -> bytes | None:
        raise AssertionError("the payload was asked for")

    @value.setter
    def value(self, value: bytes | None) -> None: ...


def test_what_other_terms_decide_is_decided_without_the_payload() -> None:
    record = Record(("p", 0, 0), None, b"{}", [], (CREATE_TIME, 1))
    letter = Opaque("p/0/0", "", entry=None, source=None, record=record, registry=Registry(), failed_ms=None)
    assert not fits_filter("value.$.a=1 team:shop", letter)
    assert fits_filter("value.$.a=1 or state:parked", letter)
    with pytest.raises(AssertionError, match="was asked for"):
        fits_filter("value.$.a=1 state:parked", letter)


@pytest.mark.parametrize(
    ("value", "path", "text"),
    [
        (b'{"a": {"b": 17}}', "$.a.b", "17"),
        (b'{"a": "x\\u00e9"}', "$.a", "xé"),
        (b'{"a": [true, {"b": null}]}', "$.a.1.b", "null"),
        (b'{"a": [true]}', "$.a.0", "true"),
        (b'{"0": 1.50}', "$.0", "1.50"),
        (b'{"a": {}}', "$.a", None),
        (b'{"a": []}', "$.a", None),
        (b'{"a": 1}', "$.b", None),
        (b'{"a": 1}', "$.a.b", None),
        (b'{"a": [1]}', "$.a.1", None),
        (b'{"a": [1]}', "$.a." + "9" * 5_000, None),
        (b'{"a": [1]}', "$.a.\u00b2", None),
        (b'{"a": 1', "$.a", None),
        (b"\xff", "$.a", None),
        (b"", "$.a", None),
        (None, "$.a", None),
        (b'{"a":' * 100_000, "$.a", None),
    ],
    ids=lambda each: str(each)[:20],
)
def test_a_path_leads_to_a_text_or_to_nothing(value: bytes | None, path: str, text: str | None) -> None:
    assert find_text(value, path) == text


def test_a_parked_letter_tells_what_its_headers_tell() -> None:
    letter = make_parked(LETTER)
    assert (letter.name, letter.source, letter.team) == ("app-parked/3/7", LetterLocation("orders-dlt", 1, 0), "shop")
    assert (letter.attempt, letter.reason, letter.policy, letter.due_ms) == (2, "rule", "shop/orders-dlt#1", None)
    told = f"(shop/orders-dlt#1, rule, {_build_row(letter)['bytes']} bytes)"
    assert _format_letter(letter).endswith(f"app-parked/3/7  orders-dlt/1/0  after 2 retries  {told}")
    assert {name: _build_row(letter)[name] for name in ("letter", "target", "due")} == {
        "letter": "orders-dlt/1/0", "target": "app-parked", "due": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("before", "mark", "state"),
    [(b"superseded", "superseded", "superseded"), (b"erased", "erased", "erased"), (b"1 0 shop.retry", None, "discarded")],
)
def test_what_lies_among_the_discarded_tells_why_and_by_which_action(before: bytes, mark: str | None, state: str) -> None:
    headers = [*own_headers("orders.DLT/1/0"), ("retry-action", b"0a0b/2"), ("retry-action-before", before)]
    record = Record(("app-discarded", 3, 7), b"k", b"v", headers, (CREATE_TIME, NOW_MS))
    letter = found_letter.make_parked_letter(record, Registry(), discarded=True)
    row = _build_row(letter)
    assert (row["state"], row["mark"], row["action"]) == ("discarded", mark, "0a0b")
    line = _format_letter(letter)
    assert line.split()[0] == state
    # Key, value and headers together.
    size = len(b"k") + len(b"v") + sum(len(name) + len(value or b"") for name, value in headers)
    assert row["bytes"] == size
    assert line.endswith(f"app-discarded/3/7  orders.DLT/1/0  attempt 2  (shop/orders.DLT#1, {size} bytes, action 0a0b)")


def test_a_parked_record_that_says_little_is_a_letter_all_the_same() -> None:
    registry = policy_file("teams: {pay: {topics: [{dead_letters: pay.DLT, retry_to: pay}]}}", "p.yaml")
    headers: Headers = [(retry_headers.SOURCE, b"pay.DLT/0/5"), (retry_headers.ID, b"7")]
    small = Record(("app-parked", 0, 1), None, None, headers, (0, -1))
    strange = Record(("app-parked", 0, 2), None, None, [(retry_headers.SOURCE, b"\xff/x")], (0, -1))
    known, unknown = (found_letter.make_parked_letter(record, registry) for record in (small, strange))
    assert (known.team, known.topic, known.attempt, known.failed_ms) == ("pay", "pay.DLT", None, None)
    assert (unknown.team, unknown.topic, unknown.source, unknown.mark) == (None, None, None, "not_ours")
    assert fits_filter("-team:* -topic:* -attempt:0..", unknown)


def test_nothing_is_believed_of_a_record_that_others_wrote_to_the_parking_topic_of_a_team() -> None:
    topic = "{{topics: [{{dead_letters: {0}.DLT, retry_to: {0}, park_to: {0}.parked}}]}}"
    registry = policy_file(f"teams: {{a: {topic.format('a')}, b: {topic.format('b')}}}", "p.yaml")
    records = (Record(("a.parked", 0, 1), b"k", None, own_headers(f"{team}.DLT/0/5", "b"), (0, -1)) for team in "ba")
    forged, own = (found_letter.make_parked_letter(record, registry) for record in records)
    assert (forged.team, forged.reason, forged.mark, forged.source, forged.topic) == ("a", "not_ours", "not_ours", None, None)
    assert (forged.policy, forged.lineage, forged.attempt, forged.first_failed_ms, forged.action) == (None,) * 5
    assert not forged.is_reference
    # Of its own team it may be; whether it was parked by reference, the outcomes tell.
    assert (own.team, own.mark, own.topic, own.is_reference) == ("a", None, "a.DLT", True)
    own.disown()
    assert (own.team, own.mark, own.topic, own.lineage, own.is_reference) == ("a", "not_ours", None, None, False)


def test_pages_follow_each_other_without_a_gap() -> None:
    table, rows = MemoryTable(), []
    for n in range(40):
        ordered, topic = n % 3 == 0, ("a", "b")[n % 2]
        stem = entry_keys.build_key_stem(topic, n % 4)
        if ordered:
            stem = entry_keys.hash_record_key("t", topic, b"%d" % (n % 5)) + stem
        key = entry_keys.build_key(NOW_MS + n % 7, stem, n, entry_keys.lane("t", topic, "r", ordered))
        rows.append((key, envelopes.encode(Entry("r", None, b"%d" % n, [], None, "t"))))
    table.apply_records(rows, 1, NOW_MS)
    whole = [(place, where) for place, where, _ in waiting_entries.iterate_waiting(table, b"")]
    assert len({where for _, where in whole}) == 40
    assert [where.due_at_ms for _, where in whole] == sorted(where.due_at_ms for _, where in whole)
    assert [where for where, _ in waiting_entries.iterate_entries(table)] == [where for _, where in whole]
    for at, (place, _) in enumerate(whole):
        assert [where for _, where, _ in waiting_entries.iterate_waiting(table, place)] == [where for _, where in whole[at + 1 :]]
        assert Cursor("due:" + place.hex()).waiting == place


@pytest.mark.parametrize("text", ["", "due:xyz", "due:" + "00" * 5_000, "a/b", "a/0/x"], ids=lambda text: text[:9])
def test_what_is_no_cursor(text: str) -> None:
    with pytest.raises(ValueError, match=r"hexadecimal|is not TOPIC"):
        Cursor(text)


def test_failures_of_one_kind_are_one_group() -> None:
    def failed_row(n: int, message: bytes, topic: str = "a.DLT") -> dict[str, Any]:
        headers = {"kafka_dlt-exception-fqcn": b"com.acme.Bad", "kafka_dlt-exception-message": message}
        coded = [[name, base64.b64encode(value).decode()] for name, value in headers.items()]
        where = {"topic": topic, "partition": 0, "offset": n, "timestamp": NOW_MS + n}
        return {**where, "key": None, "value": None, "headers": coded}

    some = [failed_row(n, b"order %d of 'Ann %d' is bad" % (n, n)) for n in range(4)]
    other, silent = failed_row(9, b"no stock", "b.DLT"), {**failed_row(0, b""), "headers": []}
    found = group_failures([*map(make_waiting, some[:3]), make_parked(some[3]), make_parked(other), make_waiting(silent)])
    assert (found.unknown, found.others, [group.count for group in found.groups]) == (1, 0, [4, 1])
    first, second = found.groups
    assert (first.waiting, first.parked, first.cause, first.message) == (3, 1, "com.acme.Bad", "order # of # is bad")
    assert (first.first_ms, first.last_ms) == (NOW_MS - 3 * HOUR_MS, NOW_MS + 3)
    assert (first.topics, second.topics, first.teams) == ({"a.DLT"}, {"b.DLT"}, {"shop"})
    assert Counter(make_waiting(each).fingerprint for each in some) == {first.fingerprint: 4}
    assert _format_group(first) == [
        f"      4  {first.fingerprint}  com.acme.Bad: order # of # is bad",
        f"         3 waiting, 1 parked; {iso(NOW_MS - 3 * HOUR_MS)} to {iso(NOW_MS + 3)}; shop: a.DLT",
    ]


def test_kinds_beyond_the_most_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found_letter, "GROUPS_MAX", 2)
    letters = {letter.fingerprint: letter for letter in map(make_waiting, CAPTURED) if letter.fingerprint}
    found = group_failures([*letters.values(), next(iter(letters.values()))])
    assert (len(found.groups), found.others, found.groups[0].count) == (2, len(letters) - 2, 2)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["letters", "-state:parked", "timeout"], "filter, column 15: text needs a field"),
        (["failures", "-header.x", "y"], "filter, column 2: text needs a field"),
        (["letters", "--after", "x"], "is no cursor"),
        (["letters", "--limt", "7"], "filter, column 2: - stands once"),
    ],
)
def test_a_mistake_is_told_before_any_broker_is_asked(words: list[str], says: str) -> None:
    told = CliRunner().invoke(main, words, env={"RETRY_BOOTSTRAP_SERVERS": "127.0.0.1:1"})
    assert told.exit_code != 0
    assert says in told.output
