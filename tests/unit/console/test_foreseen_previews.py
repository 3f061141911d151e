"""What a preview counts from the replica is what it would count if it read every letter from Kafka, and it reads few of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retry.dead_letters import retry_headers as names
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.action_records import Patch
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.envelopes import HEADERS_MAX, Entry
from retry.delay_queue.returned_offsets import ParkedPlace
from retry.delivery.foreseen_acts import Foreseen, ForeseenActs, KnownEntry
from retry.delivery.returned_letter import LetterReturns
from retry.operations.act import choose
from retry.operations.act.choose import EXAMPLES_MAX, Chosen
from retry.operations.act.selection import select_letters
from retry.operations.explain.search import LetterLocation
from retry.record import Header
from tests.support.acted import DISCARDED, POLICIES, entry_actions, letter, pack_entry, state
from tests.support.blocks import block_of
from tests.support.plans import registry_of
from tests.support.replicas import NOW_MS, failure, make_parked_record
from tests.support.rested import TOPIC_HASH
from tests.support.sealed import OLD, KeyFile
from tests.support.selected import Reads, Waits

BYTES_MAX, MANY, RESTING = 1_000_000, 300, 8
REGISTRY = registry_of(POLICIES)
KINDS: dict[str, dict[str, Any]] = {
    "retry": {}, "redirect": {"target": "orders.slow"}, "redirect nowhere": {"target": "elsewhere"}, "park": {}, "discard": {},
    "patch": {"patch": Patch({"who": "anna"})},
}  # fmt: skip
FILTERS = [
    "state:waiting", "exception:*Refused", "team:orders -exception:*Refused", "topic:keyed.DLT", "key:k*", "attempt:1 age:>1h",
    'message:"order 17"', "due:<now", "header.trace:1", "-value.$.a=1", "state:waiting or state:parked",
]  # fmt: skip


def waits(
    offset: int, *more: Header, topic: str = "orders.DLT", key: bytes | None = b"k", value: bytes | None = b'{"a":1}',
    **changed: Any,
) -> tuple[bytes, Entry]:
    """Key and entry of a letter that failed, as its headers tell."""
    place, entry = letter(topic, offset, NOW_MS - 50 + offset % 100, key, value)
    headers = [*failure("com.acme.Refused" if offset % 3 == 0 else "com.acme.Timeout"), *more, *entry.headers]
    return place, msgspec.structs.replace(entry, headers=headers, **changed)


def without(entry: Entry, header: str) -> Entry:
    return msgspec.structs.replace(entry, headers=[each for each in entry.headers if each[0] != header])


def make_mixed_letters() -> list[Waits]:
    """Letters of every kind of which a preview has something to say: many of the usual kind, and one of each that is not."""
    usual = [waits(n) for n in range(MANY)]
    ordered = [waits(1_000 + n, topic="keyed.DLT", key=b"o%d" % (n % 3)) for n in range(9)]
    key, entry = waits(2_000)
    stem = entry_keys.build_key_stem("orders.DLT", 0)
    number = entry_keys.number_letter(2_001, 3)
    odd = [
        waits(2_002, (names.PARKED_REASON, b"rule")), waits(2_003, destination=DISCARDED),
        waits(2_004, destination="orders.parked"),
        (waits(2_005)[0], without(entry, names.ID)), (waits(2_006)[0], without(entry, names.ATTEMPT)),
        waits(2_007, value=b"v" * (BYTES_MAX // 3)), waits(2_008, value=b"v" * (BYTES_MAX - 500)), waits(2_009, value=None),
        waits(2_010, *[("h", b"")] * 150), waits(2_011, *[("", None)] * (HEADERS_MAX - 10)),
        waits(2_012, ("\u00e9" * 90_000, b"")),
        waits(2_013, key=None), waits(2_014, key=b"\xff\0"), waits(2_015, ("stack", b"\xed\xa0\x80")), waits(2_016, team="bank"),
        (entry_keys.build_key(NOW_MS, stem, number, entry_keys.lane("orders", "orders.DLT", "orders.retry")), entry),
        (entry_keys.build_key(NOW_MS, stem, 2_017), entry), (entry_keys.build_key(NOW_MS, stem, 2_018, entry_keys.NULLS), entry),
        (entry_keys.make_held_key(key), entry),
    ]  # fmt: skip
    lane = entry_keys.build_named_lane("tasks", "schedules", "out")
    named = entry_keys.build_named_key(NOW_MS, bytes(16), 1, entry_keys.build_key_stem("schedules", 0), 1, lane)
    sealed_key, sealed = waits(2_019)
    return [
        *((place, pack_entry(each)) for place, each in (*usual, *ordered, *odd)), block_of(12), block_of(5, first=100),
        (named, envelopes.encode(envelopes.Named("out", b"t", b"v", [], NOW_MS, "tasks"))),
        (sealed_key, KeyFile(OLD).codec.encode(sealed_key, sealed)), (key, b"no envelope"),
    ]  # fmt: skip


class NothingReturned:
    """Says of every letter that rests that it was not returned before."""

    def is_record_returned(self, _record: LetterLocation) -> bool:
        return False

    def resolve_place(self, record: LetterLocation) -> ParkedPlace:
        return ParkedPlace(TOPIC_HASH, record.partition, record.offset)


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(tmp_path, monkeypatch, make_mixed_letters(), [make_parked_record(n, "orders") for n in range(RESTING)], REGISTRY)


def state_of(kind: str) -> ActionState:
    return state(kind.partition(" ")[0], **KINDS[kind])


def choose_letters(reads: Reads, words: str, action: ActionState, *, foresees: bool, given: Sequence[str] = ()) -> Chosen:
    """Choose the letters of a preview, from the replica where that tells it, or else from the records of all letters."""
    reads.fetched.clear()
    selection, actions = select_letters(words, given, NOW_MS), entry_actions(BYTES_MAX)
    source = reads.find(selection)
    rows = source.iterate_waiting(ForeseenActs(actions, action).foresee if foresees else lambda _: Foreseen.UNKNOWN)
    return choose.choose(rows, 1, REGISTRY, selection.selects, actions, action, NOW_MS)


def describe(chosen: Chosen) -> dict[str, Any]:
    """Everything that a preview says of its letters."""
    counts = {"refused": chosen.refused, "groups": chosen.groups, "ordered": chosen.ordered, "orders": chosen.orders}
    return {"keys": [sorted(keys) for keys in chosen.keys], **counts}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_counted_from_the_replica_is_what_all_records_tell(reads: Reads, kind: str) -> None:
    for words in FILTERS:
        few, whole = (choose_letters(reads, words, state_of(kind), foresees=foresees) for foresees in (True, False))
        assert describe(few) == describe(whole), words
        assert len(few.examples) == len(whole.examples), words


def test_of_a_filter_that_the_replica_decides_few_records_are_read(reads: Reads) -> None:
    whole = choose_letters(reads, "state:waiting", state_of("retry"), foresees=False)
    assert len(reads.fetched) > MANY
    few = choose_letters(reads, "state:waiting", state_of("retry"), foresees=True)
    assert describe(few) == describe(whole)
    assert whole.refused.keys() >= {"named", "parks", "discarded", "sealed", "too_large"}, "the corpus has something of each"
    # Those that are shown, and large ones, those with many headers, and what is sealed.
    assert len(reads.fetched) <= EXAMPLES_MAX + 8
    assert len(few.examples) == EXAMPLES_MAX


def test_of_named_letters_only_those_that_are_shown_are_read(reads: Reads) -> None:
    given = [f"orders.DLT/0/{n}" for n in range(100)]
    few = choose_letters(reads, "exception:*Refused", state_of("retry"), foresees=True, given=given)
    assert (few.count, len(reads.fetched)) == (34, EXAMPLES_MAX)
    assert describe(few) == describe(choose_letters(reads, "exception:*Refused", state_of("retry"), foresees=False, given=given))


@pytest.mark.parametrize("words", ["-value.$.a=1", "header.trace:1", "state:waiting value.$.a=1"])
def test_of_a_filter_on_payloads_all_records_are_read(reads: Reads, words: str) -> None:
    choose_letters(reads, words, state_of("retry"), foresees=True)
    assert len({place.offset for place in reads.fetched}) > MANY


def test_a_patch_reads_all_records(reads: Reads) -> None:
    choose_letters(reads, "topic:orders.DLT", state_of("patch"), foresees=True)
    assert len({place.offset for place in reads.fetched}) > MANY


def test_with_keys_for_encryption_nothing_is_told_without_the_record() -> None:
    known = KnownEntry(letter()[0], "orders.retry", has_history=True, size=10)
    assert ForeseenActs(entry_actions(), state("retry")).foresee(known) is Foreseen.DONE
    assert ForeseenActs(entry_actions(codec=KeyFile(OLD).codec), state("retry")).foresee(known) is Foreseen.UNKNOWN


def test_letters_that_rest_are_read_and_counted_beside_those_that_wait(reads: Reads) -> None:
    selection = select_letters("state:waiting or state:parked", (), NOW_MS)
    source, actions = reads.find(selection), entry_actions(BYTES_MAX)
    action = state("discard")
    chosen = choose.choose(
        source.iterate_waiting(ForeseenActs(actions, action).foresee), 1, REGISTRY, selection.selects, actions, action, NOW_MS
    )
    waiting = chosen.count
    source.__dict__["returned"] = NothingReturned()
    returns = LetterReturns(actions.redecider, DISCARDED, 1)
    shown = choose.choose_resting(source, selection.selects, returns, action, NOW_MS, chosen)
    assert (chosen.count - waiting, len(shown)) == (RESTING, RESTING)
    assert reads.progress[-1] == waiting + chosen.refused.total() + RESTING
