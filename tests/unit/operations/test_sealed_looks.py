"""What commands say of entries that are sealed: all with their keys; without them what lies in clear, and why no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from retry.__main__ import main
from retry.cli.letters import _build_row, _format_letter
from retry.delay_queue import action_records, entry_keys
from retry.delay_queue.action_records import Member
from retry.delay_queue.entry_keys import HELD, PLAIN
from retry.delay_queue.envelope_codec import PLAIN as WITHOUT_KEYS
from retry.delay_queue.envelope_codec import EnvelopeCodec, make_codec
from retry.delay_queue.envelopes import Unopened
from retry.delivery.letter_changes import SEALED
from retry.operations import waiting_entries
from retry.operations.act import choose, letter_sources, request
from retry.operations.act.erase import Erasing
from retry.operations.explain.evidence import LetterEvidence
from retry.operations.explain.explanation import explain_evidence
from retry.operations.explain.search import LetterLocation
from retry.operations.found_letter import FoundLetter, make_waiting_letter
from retry.policies.registry import Registry
from retry.settings import Settings
from retry.testing.memory_table import MemoryTable
from tests.support import acted
from tests.support.acted import NOW_MS
from tests.support.sealed import NEW, OLD, KeyFile
from tests.support.simulated_clock import simulated_clock

CANARY = b"canary-4711"
PLACE = LetterLocation("orders.DLT", 0, 7)
FILE, OTHER = KeyFile(OLD), KeyFile(NEW)


def rows(codec: EnvelopeCodec = FILE.codec, held: bool = False, offset: int = 7) -> list[tuple[bytes, bytes]]:
    key, entry = acted.letter(offset=offset, key=CANARY, value=CANARY, due_at_ms=NOW_MS)
    return [(entry_keys.move_into_lane(key, HELD[PLAIN]) if held else key, codec.encode(key, entry))]


def table(*folded: tuple[bytes, bytes]) -> MemoryTable:
    made = MemoryTable()
    made.apply_records(folded, len(folded), NOW_MS)
    return made


def make_sealed_letter(codec: EnvelopeCodec, held: bool = False) -> FoundLetter:
    ((_, where, entry),) = waiting_entries.iterate_waiting(table(*rows(held=held)), b"", codec)
    return make_waiting_letter(where, entry, Registry(), "")


@pytest.mark.parametrize("held", [False, True])
def test_a_letter_is_told_whole_with_its_key(held: bool) -> None:
    letter = make_sealed_letter(FILE.codec, held)
    assert (letter.key, letter.value, letter.attempt, letter.sealed, letter.team) == (CANARY, CANARY, 1, None, "orders")
    assert "attempt 1 to orders.retry" in _format_letter(letter)
    assert _build_row(letter)["sealed"] is None


@pytest.mark.parametrize("codec", [WITHOUT_KEYS, OTHER.codec], ids=["no keys", "other keys"])
def test_without_it_where_a_letter_goes_is_told_and_nothing_of_what_it_holds(codec: EnvelopeCodec) -> None:
    letter = make_sealed_letter(codec)
    assert (letter.key, letter.value, letter.headers, letter.attempt, letter.team) == (None, None, [], None, "orders")
    line, row = _format_letter(letter), _build_row(letter)
    assert line.endswith(f"{NOW_MS}/orders.DLT/0/7  orders to orders.retry  (not read: {letter.sealed})")
    assert "under key old" in str(row["sealed"])
    assert (row["target"], row["bytes"], row["letter"]) == ("orders.retry", None, "orders.DLT/0/7")
    assert CANARY.decode() not in line + str(row)


def evidence(codec: EnvelopeCodec, *, held: bool, blocked: str | None = None) -> LetterEvidence:
    there = waiting_entries.find_entry(table(*rows(held=held)), *PLACE, codec)
    assert there is not None
    return LetterEvidence(PLACE, None, None, None, 8, there, blocked, None, 1, None, None)


def explain_sealed(codec: EnvelopeCodec, *, held: bool) -> str:
    """Explain where a sealed letter is, ten seconds after it was due."""
    return " ".join(explain_evidence(evidence(codec, held=held), None, None, NOW_MS + 10_000).sentences["now"])


def test_explain_says_that_it_is_held_and_why() -> None:
    assert "It is held: workers could not open it, and send nothing of it." in explain_sealed(FILE.codec, held=True)
    assert "cannot be read here" not in explain_sealed(FILE.codec, held=True)
    told = explain_sealed(OTHER.codec, held=True)
    why = "it is sealed under key old, which is not in the file of RETRY_ENCRYPTION_KEYS"
    assert f"What it holds cannot be read here: {why}." in told
    assert "Nothing forbids it" not in told
    told = explain_sealed(WITHOUT_KEYS, held=False)
    assert "held" not in told
    assert "cannot be read here: it is sealed under key old, and RETRY_ENCRYPTION_KEYS is not set." in told
    assert "has a name" not in told


def choose_letters(monkeypatch: pytest.MonkeyPatch, codec: EnvelopeCodec, selects: Any = lambda _: True) -> choose.Chosen:
    monkeypatch.setattr(waiting_entries, "load_shard_tables", lambda _: iter([(0, table(*rows(), *rows(held=True, offset=8)))]))
    asked = request.renew_action(action_records.Action(action_records.RETRY, "anna", NOW_MS, [], 0))
    actions = acted.entry_actions(codec=codec)
    letters = letter_sources.iterate_changelog(Settings())
    return choose.choose(letters, 1, Registry(), selects, actions, asked.build_initial_state(), NOW_MS)


def test_only_what_can_be_opened_and_is_not_held_is_acted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with_keys = choose_letters(monkeypatch, FILE.codec)
    assert (with_keys.count, dict(with_keys.refused)) == (1, {SEALED: 1})
    assert dict(choose_letters(monkeypatch, OTHER.codec).refused) == {SEALED: 2}


def test_whoever_erases_without_all_keys_is_told_that_there_may_be_more(monkeypatch: pytest.MonkeyPatch) -> None:
    erasing = Erasing(CANARY)
    assert dict(choose_letters(monkeypatch, FILE.codec, erasing.matches).refused) == {SEALED: 1}, "the one that is held"
    assert erasing.sealed == 0
    blind = Erasing(CANARY)
    assert choose_letters(monkeypatch, OTHER.codec, blind.matches).count == 0
    assert blind.sealed == 2
    assert Erasing(CANARY, "other.DLT").matches(make_sealed_letter(OTHER.codec)) is False


@pytest.fixture
def shards(monkeypatch: pytest.MonkeyPatch) -> list[MemoryTable]:
    """The tables that commands fold from the changelog."""
    tables: list[MemoryTable] = []
    monkeypatch.setattr(waiting_entries, "load_shard_tables", lambda _: enumerate(tables))
    return tables


def test_keys_are_listed_with_what_waits_under_each(
    shards: list[MemoryTable], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, entry = acted.letter(offset=9)
    edit = Member(key, NOW_MS, b"digest", OTHER.codec.encode(key, entry))
    slice_row = (
        action_records.build_slice_key(acted.ACTION, 0, 0),
        action_records.encode_slice([edit, Member(key, NOW_MS)], NOW_MS),
    )
    shards += [
        table(*rows(), *rows(held=True, offset=8), (key, acted.pack_entry(entry))),
        table(*rows(offset=10), *rows(KeyFile(NEW).codec, offset=11), slice_row),
    ]
    file = tmp_path / "keys"
    file.write_text(f"{NEW}\nunused {OLD.partition(' ')[2]}\n")
    monkeypatch.setenv("RETRY_ENCRYPTION_KEYS", str(file))
    listed = CliRunner().invoke(main, ["keys", "list", "--json"])
    assert listed.exit_code == 0, listed.output
    assert [orjson.loads(line) for line in listed.output.splitlines()] == [
        {"key_id": "new", "in_file": True, "seals": True, "entries": 1, "held": 0, "edits": 1},
        {"key_id": "unused", "in_file": True, "seals": False, "entries": 0, "held": 0, "edits": 0},
        {"key_id": "old", "in_file": False, "seals": False, "entries": 3, "held": 1, "edits": 0},
        {"key_id": None, "in_file": False, "seals": False, "entries": 1, "held": 0, "edits": 0},
    ]  # fmt: skip
    for_people = CliRunner().invoke(main, ["keys", "list"]).output.splitlines()
    assert [" ".join(line.split()) for line in for_people] == [
        "new seals 1 entries, 0 of them held, 1 edits of actions that are not done", "unused opens nothing waits under it",
        "old NOT IN THE FILE 3 entries, 1 of them held", "(in clear) 1 entries",
    ]  # fmt: skip
    assert waiting_entries.count_by_key(Settings()).keys() == {"new", "old", None}


def test_a_new_key_is_a_line_for_the_file(tmp_path: Path) -> None:
    made = CliRunner().invoke(main, ["keys", "new", "2026-11"])
    assert made.exit_code == 0
    file = tmp_path / "keys"
    file.write_text(made.output)
    codec = make_codec(Settings(encryption_keys=file))
    assert codec.decode(*rows(codec)[0]).key == CANARY
    refused = CliRunner().invoke(main, ["keys", "new", "a/b"])
    assert (refused.exit_code, "does not begin with an id" in refused.output) == (1, True)


def test_a_file_of_keys_that_changes_counts_within_seconds_and_without_a_restart(tmp_path: Path) -> None:
    file, (key, entry) = tmp_path / "keys", acted.letter()
    file.write_text(OLD)
    with simulated_clock() as clock:
        codec = make_codec(Settings(encryption_keys=file))
        envelope = codec.encode(key, entry)
        file.write_text(NEW)
        clock.pause(6)
        assert isinstance(codec.decode_to_show(key, envelope), Unopened)
        file.write_text("nonsense")
        clock.pause(6)
        assert codec.decode_to_show(key, codec.encode(key, entry)) == entry, "what was read before stays in use"
        file.write_text(f"{NEW}\n{OLD}")
        clock.pause(6)
        assert codec.decode(key, envelope) == entry
