"""Which letters a preview in the console reads: those that are selected and no others, each from its own record."""

from __future__ import annotations

from pathlib import Path

import pytest

from retry.console.reading import letter_search, selected_letters
from retry.console.reading.letter_search import LetterSearch
from retry.console.reading.selected_letters import SelectedLetters
from retry.delay_queue import blocks, entry_keys
from retry.delivery.foreseen_acts import Foreseen, KnownEntry
from retry.errors import ActionRefused
from retry.kafka.record_fetch import GONE, UNREADABLE
from tests.support.replicas import OWN, entry, failure, make_parked_record
from tests.support.selected import Reads
from tests.unit.console.test_replica_blocks import ALONE, BLOCK, NAMES

WAITING, RESTING = 30, 12
OTHER = failure("com.acme.Refused", "card declined")


def read_all(_: KnownEntry) -> Foreseen:
    return Foreseen.UNKNOWN


def make_reads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Reads:
    """30 letters that wait, and 12 that are parked."""
    waits = [entry(n, headers=OTHER if n % 10 == 3 else None, team="bank" if n == 4 else "payments") for n in range(WAITING)]
    return Reads(folder, monkeypatch, waits, [make_parked_record(n) for n in range(100, 100 + RESTING)])


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reads:
    return make_reads(tmp_path, monkeypatch)


def offsets(found: SelectedLetters) -> list[int]:
    return sorted(entry_keys.read_source(row.key).offset for row in found.iterate_waiting(read_all))


def test_of_a_filter_just_the_records_of_its_letters_are_read(reads: Reads) -> None:
    found = reads.select("exception:com.acme.Refused")
    rows = [*found.iterate_waiting(read_all)]
    assert [(row.shard, entry_keys.read_source(row.key).offset) for row in rows] == [(0, 3), (0, 13), (0, 23)]
    assert [(row.key, row.envelope) for row in rows] == [entry(n, headers=OTHER) for n in (3, 13, 23)]
    assert sorted(place.offset for place in reads.fetched) == [3, 13, 23]
    assert [*found.iterate_resting()] == [], "a filter that names no state means what waits"
    assert reads.progress == [3]


def test_letters_that_rest_are_read_from_where_they_rest(reads: Reads) -> None:
    found = reads.select("state:parked")
    assert [*found.iterate_waiting(read_all)] == []
    assert sorted(letter.place.offset for letter in found.iterate_resting() if letter.place) == list(range(RESTING))
    assert {place.topic for place in reads.fetched} == {OWN.parked}


@pytest.mark.parametrize("states", ["state:waiting or state:parked", ""])
def test_a_name_is_found_wherever_it_is(reads: Reads, states: str) -> None:
    waits = str(entry_keys.read_source(entry(7)[0]))
    found = reads.select(states, waits, f"{OWN.parked}/0/2", "orders.DLT/0/9")
    assert offsets(found) == [7, 9]
    assert [letter.place.offset for letter in found.iterate_resting() if letter.place] == [2]
    assert {(place.topic, place.offset) for place in reads.fetched} == {(OWN.changelog, 7), (OWN.changelog, 9), (OWN.parked, 2)}
    unknown = reads.select(states, "1/orders.DLT/0/7", "nowhere/0/1")
    assert [*unknown.iterate_waiting(read_all), *unknown.iterate_resting()] == []


def test_only_letters_of_teams_that_one_may_act_for_are_read(reads: Reads) -> None:
    assert offsets(reads.select("topic:orders.DLT", scope=frozenset({"bank"}))) == [4]
    assert offsets(reads.select("", "orders.DLT/0/4", "orders.DLT/0/5", scope=frozenset({"bank"}))) == [4]
    assert [place.offset for place in reads.fetched] == [4, 4]
    assert offsets(reads.select("topic:orders.DLT", scope=frozenset())) == []


def test_a_term_on_payloads_is_left_to_whoever_has_the_record(reads: Reads) -> None:
    assert offsets(reads.select("exception:com.acme.Refused value.$.n=1")) == [3, 13, 23]


def test_many_letters_are_read_some_at_a_time_and_each_once(reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selected_letters, "_BATCH", 7)
    assert offsets(reads.select("state:waiting")) == list(range(WAITING))
    assert reads.progress == [7, 14, 21, 28, 30]
    monkeypatch.setattr(selected_letters, "_BATCH_BYTES", 1)
    assert offsets(reads.select("state:waiting")) == list(range(WAITING)), "one by one, where one takes all of the memory"


def test_many_letters_are_walked_over_and_not_looked_up_cell_by_cell(reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, letters in {"COUNT_MAX": 5, "_OF_EACH_MAX": 5, "_FIRST_STRETCH": 4, "_STRETCH_MIN": 2, "_STRETCH_MAX": 4}.items():
        monkeypatch.setattr(letter_search, name, letters)
    # Of each cell it would give all letters again for every page.
    monkeypatch.delattr(LetterSearch, "_of_each")
    assert offsets(reads.select("state:waiting")) == list(range(WAITING))
    assert offsets(reads.select("exception:com.acme.Refused")) == [3, 13, 23]


def test_what_is_gone_is_counted_and_what_cannot_be_read_ends_it(reads: Reads) -> None:
    reads.answers = {(OWN.changelog, 3): GONE}
    found = reads.select("exception:com.acme.Refused")
    assert (offsets(found), found.gone) == ([13, 23], 1)
    reads.answers = {(OWN.changelog, 13): UNREADABLE, (OWN.changelog, 23): UNREADABLE}
    with pytest.raises(ActionRefused, match="2 records could not be read"):
        offsets(reads.select("exception:com.acme.Refused"))


def test_whoever_does_not_want_it_any_more_ends_it(reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selected_letters, "_BATCH", 7)
    found = reads.select("state:waiting")

    def drop(letters_read: int) -> None:
        if letters_read > 7:
            raise ActionRefused("dropped")

    found._note_progress = drop
    with pytest.raises(ActionRefused, match="dropped"):
        offsets(found)
    assert len(reads.fetched) == 14


def test_letters_of_a_block_come_from_its_one_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads(tmp_path, monkeypatch, [ALONE[0], BLOCK, ALONE[1]])
    rows = [*reads.select("", NAMES[1], NAMES[3]).iterate_waiting(read_all)]
    keys, of_block = blocks.list_keys(BLOCK[0]), dict(blocks.read_rows(*BLOCK))
    assert [(row.key, row.envelope) for row in rows] == [(keys[n], of_block[keys[n]]) for n in (1, 3)]
    assert [place.offset for place in reads.fetched] == [1]
