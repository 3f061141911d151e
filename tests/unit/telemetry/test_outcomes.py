"""What became of letters, packed into few records: every letter is told of once, and read as it was written."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.telemetry import outcomes
from retry.telemetry.outcomes import ActionOutcome, LettersByShared, Outcome, SharedFields, encode_outcomes, read

DOCS = Path(__file__).parents[3] / "docs"
TAKEN_MS = 1_700_000_000_000
PLAIN = SharedFields("shop", "orders.DLT", 3, "shop/orders", 1, None, "retry", None, "orders.retry", None, None, None)
TEXTS = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
TIMES_MS = st.integers(0, 1 << 53)
SHARED = st.builds(
    SharedFields, st.sampled_from(["shop", 'a"b\\']), st.sampled_from(["orders.DLT", "other"]), st.integers(0, 9),
    st.just("shop/orders"), st.integers(1, 1 << 33), TEXTS, st.sampled_from(["retry", "park", "discard"]), TEXTS,
    st.just("orders.retry"), TEXTS, st.sampled_from([None, "f00d" * 4]), TEXTS,
)  # fmt: skip
IDS = st.integers(0, (1 << 128) - 1).map(lambda number: b"%032x" % number)
ROWS = st.lists(st.tuples(IDS, st.integers(0, 1 << 62), TIMES_MS, TIMES_MS, st.one_of(st.none(), TIMES_MS)), max_size=4)
LETTERS = st.dictionaries(SHARED, ROWS, max_size=6)
ACTION = ActionOutcome("0a0b", 'a"b')


def letters_of(rows: dict[SharedFields, outcomes.LetterRows]) -> LettersByShared:
    return defaultdict(list, rows)


def plain(count: int, shared: SharedFields = PLAIN) -> outcomes.LetterRows:
    return [(b"%032x" % n, n, TAKEN_MS - 2, TAKEN_MS - 1, TAKEN_MS + 9) for n in range(count)]


def list_expected(rows: dict[SharedFields, outcomes.LetterRows], by: ActionOutcome | None = None) -> list[Outcome]:
    return [
        Outcome(
            v=1, id=id_.decode(), source=f"{s.topic}/{s.partition}/{offset}", team=s.team, topic=s.topic,
            policy=s.policy, attempt=s.attempt, exception=s.exception, first_failed_ms=first_ms, failed_ms=failed_ms,
            taken_ms=TAKEN_MS, decision=s.decision, reason=s.reason, due_ms=due_ms, target=s.target, cause=s.cause,
            fingerprint=s.fingerprint, group=s.group, delay_ms=None if due_ms is None else due_ms - failed_ms,
            action=by and by.id, action_kind=by and by.kind,
        )
        for s, of_shared in rows.items() for id_, offset, first_ms, failed_ms, due_ms in of_shared
    ]  # fmt: skip


@given(LETTERS, st.sampled_from([None, ACTION]))
def test_every_letter_is_read_once_as_it_was_written(
    rows: dict[SharedFields, outcomes.LetterRows], by: ActionOutcome | None
) -> None:
    found = [letter for value in encode_outcomes(letters_of(rows), TAKEN_MS, by) for letter in read(value)]
    assert found == list_expected(rows, by)


def test_a_batch_of_plain_letters_is_few_small_records() -> None:
    values = list(encode_outcomes(letters_of({PLAIN: plain(4_800)}), TAKEN_MS))
    assert [len(read(value)) for value in values] == [500] * 9 + [300]
    # One letter a record took 390 bytes each, and the overhead of a record.
    assert sum(map(len, values)) < 100 * 4_800


def test_letters_that_share_nothing_are_told_together_up_to_a_size() -> None:
    rows = {PLAIN._replace(exception=f"{n:05d}" + "x" * 20_000): plain(1) for n in range(50)}
    values = list(encode_outcomes(letters_of(rows), TAKEN_MS))
    assert [letter for value in values for letter in read(value)] == list_expected(rows)
    assert max(map(len, values)) < 200_100 and len(values) < 10


def test_no_letter_is_no_record() -> None:
    assert list(encode_outcomes(letters_of({PLAIN: []}), TAKEN_MS)) == []


@pytest.mark.parametrize("by", [None, ACTION])
def test_the_reader_of_the_docs_reads_what_is_written(by: ActionOutcome | None) -> None:
    rows = {PLAIN: plain(3), PLAIN._replace(partition=4, decision="park", reason="rule"): [(b"00", 7, 1, 2, None)]}
    (value,) = encode_outcomes(letters_of(rows), TAKEN_MS, by)
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "reference" / "outcomes.md").read_text(encoding="utf-8"), re.DOTALL)
    space: dict[str, object] = {}
    exec(code, space)  # What a reader of the page would do with it.
    found = list(space["letters"](value))  # type: ignore[operator]
    same = [{k: v for k, v in letter.items() if k not in ("source", "delay_ms")} for letter in list_expected(rows, by)]
    assert [{k: v for k, v in letter.items() if k not in ("partition", "offset")} for letter in found] == same
    assert [f"{letter['topic']}/{letter['partition']}/{letter['offset']}" for letter in found] == [
        letter["source"] for letter in list_expected(rows)
    ]


@pytest.mark.parametrize(
    "value",
    [
        b"", b"{", b"[1]", b"3", b"null", b'{"v":1,"letters":3}', b'{"v":1,"letters":[3]}', b'{"v":1,"letters":[{}]}',
        b"\xff", b'{"v":1,"taken_ms":1,"letters":null}',
    ],
)  # fmt: skip
def test_what_is_no_outcome_is_an_error(value: bytes) -> None:
    with pytest.raises(ValueError, match="are no outcome"):
        read(value)


def test_lists_of_different_lengths_are_an_error() -> None:
    (value,) = encode_outcomes(letters_of({PLAIN: plain(2)}), TAKEN_MS)
    record = orjson.loads(value)
    record["letters"][0]["offset"].append(9)
    with pytest.raises(ValueError, match="are no outcome"):
        read(orjson.dumps(record))
