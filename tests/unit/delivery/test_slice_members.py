"""Letters that rest are returned once each, whoever asks how often, and whatever a commit comes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import orjson
import pytest

from retry.dead_letters import retry_headers as names
from retry.delay_queue import action_records, entry_keys, envelopes, returned_offsets
from retry.delay_queue.action_records import Member, Order, Tally
from retry.delay_queue.envelope_codec import PLAIN
from retry.delivery import letter_changes, slice_members
from retry.delivery.act import GROWN
from retry.delivery.act_records import digest_content
from retry.delivery.letter_changes import ActedLetter
from retry.delivery.returned_letter import record_digest
from retry.delivery.slice_members import WAIT_MS
from retry.errors import CommitInDoubt, TransactionAborted
from retry.intake import attempts
from retry.record import Record
from retry.testing.kafka import Fault, MemoryPartition
from tests.support.acted import ACTION, DISCARDED, HEADER_PATCH, HOUR_MS, ID, NOW_MS, POLICIES, letter, pack_entry, state
from tests.support.rested import PARKING, TOPIC_HASH, dead, park_letter, place, returns, with_headers
from tests.unit.delivery.test_act import AUDIT, OTHER, Bench, sources


class Parking:
    """Records by their places; `is_slow`: each is asked for once in vain."""

    def __init__(self, *records: Record, is_slow: bool = False) -> None:
        self.records: dict[bytes, Any] = {place(n): (record, record) for n, record in enumerate(records)}
        self.is_slow, self.at_once, self.asked = is_slow, 500, list[list[bytes]]()

    def __call__(self, parking: Mapping[str, str], places: Sequence[bytes]) -> Mapping[bytes, Any] | None:
        assert parking == PARKING
        self.asked.append(list(places))
        if self.is_slow and self.asked.count(list(places)) == 1:
            return None
        return {key: self.records.get(key, letter_changes.GONE) for key in places[: self.at_once]}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def put_resting(bench: Bench, count: int, **options: bool) -> Parking:
    """So many letters rest."""
    bench.ask_parked = parking = Parking(*(park_letter(dead(offset=n)) for n in range(count)), **options)
    return parking


def ask(bench: Bench, *offsets: int, kind: str = "retry", **more: Any) -> None:
    bench.ask(kind, [Member(place(n), NOW_MS + n) for n in offsets], parking=PARKING, **more)


def bitmap(bench: Bench) -> set[int]:
    """Offsets of the first block that are marked."""
    block = bench.table.get(returned_offsets.decode_place(place(0)).block())
    return {n for n in range(returned_offsets.OFFSETS_A_BLOCK) if returned_offsets.is_offset_returned(block, n)}


def test_each_is_put_once_and_marked_and_told(bench: Bench) -> None:
    put_resting(bench, 3)
    ask(bench, 0, 2)
    assert bench.finish() == [2]
    assert (bench.tally, sources(bench.live()), bitmap(bench)) == (Tally(1, 2, 0, {}), [0, 2], {0, 2})
    assert [entry_keys.due_at_ms(key) - NOW_MS for key in sorted(bench.live())] == [0, 2]
    assert bench.audited() == [["done", "done"]]
    assert bench.log.read("lineage")
    assert not bench.table.has_slices


def test_the_audit_has_a_digest_of_what_a_patch_made_of_a_letter_that_rested(bench: Bench) -> None:
    put_resting(bench, 1)
    ask(bench, 0, kind="patch", patch=HEADER_PATCH)
    bench.finish()
    ((told,),), (envelope,) = bench.told(), bench.live().values()
    entry = envelopes.decode(envelope)
    assert (told["parked"], told["after"]) == ("orders.parked/0/0", digest_content(entry.key, entry.value, entry.headers))


@pytest.mark.parametrize(
    ("kind", "decision", "due_ms", "target"),
    [("retry", "return", NOW_MS, "orders.retry"), ("discard", "discard", None, DISCARDED), ("erase", "erase", None, DISCARDED)],
)
def test_what_becomes_of_a_letter_that_rested_is_an_outcome_beyond_its_last_attempt(
    bench: Bench, kind: str, decision: str, due_ms: int | None, target: str
) -> None:
    put_resting(bench, 1)
    ask(bench, 0, kind=kind)
    bench.finish()
    (told,) = bench.outcomes()
    assert (told["source"], told["decision"], told["due_ms"], told["target"]) == ("orders.DLT/0/0", decision, due_ms, target)
    # It was made three times and parked; of an erased one nothing is left that says why it rested.
    assert (told["id"], told["attempt"]) == (ID.decode(), 3 if kind == "erase" else 4)
    assert (told["first_failed_ms"], told["failed_ms"]) == (NOW_MS - 1_000, NOW_MS)
    assert (told["action"], told["action_kind"], told["team"]) == (ACTION.hex(), kind, "orders")


def test_its_one_more_send_is_counted_once(bench: Bench) -> None:
    put_resting(bench, 1)
    ask(bench, 0)
    bench.finish()
    number = attempts.parse_retry_id(ID)
    fingerprint = attempts.make_fingerprint("orders.DLT", attempts.hash_payload(b"k", b'{"a":1}'))
    # It was parked after its third retry, and is sent for the fourth time.
    known = bench.lineages(
        attempts.build_fields(number, fingerprint, NOW_MS, NOW_MS, 3),
        attempts.build_fields(number, fingerprint, NOW_MS, NOW_MS, 0),
    )
    found = known.sends(number)
    assert found is not None
    assert found.attempts == 4
    assert known.find_returned(fingerprint, NOW_MS + 2_000, HOUR_MS) == found


def test_of_two_actions_about_one_letter_the_second_finds_it_returned(bench: Bench) -> None:
    put_resting(bench, 2)
    ask(bench, 0, 1)
    bench.now_ms += 1
    ask(bench, 0, kind="discard", action=OTHER)
    bench.finish()
    assert (bench.tally.done, bench.state(OTHER).tally) == (2, Tally(1, 0, 0, {"returned": 1}))
    assert sources(bench.live()) == [0, 1]


def test_a_letter_that_a_slice_names_twice_is_put_once(bench: Bench) -> None:
    put_resting(bench, 1)
    ask(bench, 0, 0)
    bench.finish()
    assert (len(bench.live()), bench.tally) == (1, Tally(1, 1, 0, {"returned": 1}))


@pytest.mark.parametrize("kind", ["retry", "discard", "erase"])
@pytest.mark.parametrize("apart", [False, True])
def test_letters_with_the_same_coordinates_never_get_one_key(bench: Bench, kind: str, apart: bool) -> None:
    # Their topic was deleted and made anew; another such letter waits already, and is due when they are.
    records = [park_letter(dead(value=b"%d" % n)) for n in range(2)]
    bench.ask_parked = Parking(*records)
    waiting, entry = letter(due_at_ms=NOW_MS)
    bench.write((waiting, pack_entry(entry)))
    members = [Member(place(n), NOW_MS) for n in range(2)]
    bench.ask(kind, *([member] for member in members) if apart else (members,), parking=PARKING)
    bench.finish()
    assert (bench.tally.done, len(bench.live()), bitmap(bench)) == (2, 3, {0, 1})
    if kind == "retry":
        due_ms = {entry_keys.due_at_ms(key): dict(envelopes.decode(row).headers) for key, row in bench.live().items()}
        assert [int(due_ms[NOW_MS + n][names.DUE_MS] or b"") - NOW_MS for n in (1, 2)] == [1, 2]


def test_nothing_is_written_while_records_are_being_read_and_nobody_waits_for_them(bench: Bench) -> None:
    parking = put_resting(bench, 1, is_slow=True)
    ask(bench, 0)
    assert (bench.step(), bench.live()) == (0, {})
    assert bench.step() == 1
    assert parking.asked == [[place(0)], [place(0)]]


def test_two_actions_that_are_read_for_do_not_take_each_others_turn(bench: Bench) -> None:
    parking = put_resting(bench, 3, is_slow=True)
    ask(bench, 0)
    bench.now_ms += 1
    ask(bench, 1, 2, action=OTHER)
    assert [bench.step() for _ in range(4)] == [0, 1, 0, 2]
    assert parking.asked == [[place(0)]] * 2 + [[place(1), place(2)]] * 2


def test_what_is_read_is_returned_and_the_rest_is_asked_for_again(bench: Bench) -> None:
    put_resting(bench, 60).at_once = 25
    ask(bench, *range(60))
    assert bench.finish() == [25, 25, 10]
    assert (bench.tally, bitmap(bench)) == (Tally(1, 60, 0, {}), set(range(60)))


def test_large_ones_are_done_in_parts(bench: Bench) -> None:
    put_resting(bench, 3)
    ask(bench, 0, 1, 2)
    assert bench.finish(bytes_max=1) == [1, 1, 1]
    assert (bench.tally, sources(bench.live())) == (Tally(1, 3, 0, {}), [0, 1, 2])


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.LATE])
def test_whatever_a_commit_comes_to_each_is_put_once(bench: Bench, fault: Fault, anew: bool) -> None:
    put_resting(bench, 4)
    ask(bench, 0, 1, 2, 3)
    bench.log.faults = [fault]
    with pytest.raises((TransactionAborted, CommitInDoubt)) as failed:
        bench.step()
    if anew or failed.type is CommitInDoubt:
        bench.open()
    else:
        bench.now_ms += HOUR_MS
    bench.finish()
    assert (bench.tally, sources(bench.live()), bitmap(bench)) == (Tally(1, 4, 0, {}), [0, 1, 2, 3], {0, 1, 2, 3})
    assert sum(map(len, bench.audited())) == 4


def test_what_is_not_returned_is_not_marked_and_can_be_asked_for_again(bench: Bench) -> None:
    parking = put_resting(bench, 2)
    parking.records[place(1)] = "source_gone"
    ask(bench, 0, 1, 5)
    bench.finish()
    assert (bench.tally, bitmap(bench)) == (Tally(1, 1, 1, {"source_gone": 1}), {0})
    parking.records[place(1)] = (record := park_letter(dead(offset=1)), record)
    bench.now_ms += 1
    ask(bench, 1, action=OTHER)
    bench.finish()
    assert (bench.state(OTHER).tally, bitmap(bench)) == (Tally(1, 1, 0, {}), {0, 1})


def edit(offset: int, record: Record, value: bytes = b"2") -> Member:
    """An edit of the record at this offset, made from that one."""
    back = returns(shards=1).return_letter(state("retry"), record, record, NOW_MS, NOW_MS)
    assert isinstance(back, ActedLetter)
    edited = msgspec.structs.replace(back.entry, value=value)
    return Member(place(offset), NOW_MS, record_digest(record, PLAIN), envelopes.encode(edited))


def test_an_edit_is_returned_once_and_its_original_is_kept_in_the_same_transaction(bench: Bench) -> None:
    parking = put_resting(bench, 3)
    records = [record for record, _ in parking.records.values()]
    # The first is as it was, the second another record by now, and the third is gone.
    bench.ask("edit", [edit(0, records[0])], parking=PARKING)
    bench.ask("edit", [edit(1, records[2])], parking=PARKING, action=OTHER)
    del parking.records[place(2)]
    gone = b"\x0c" * len(OTHER)
    bench.ask("edit", [edit(2, records[2])], parking=PARKING, action=gone)
    bench.finish()
    assert [bench.state(action).tally for action in (ACTION, OTHER, gone)] == [
        Tally(1, 1, 0, {}), Tally(1, 0, 0, {"changed": 1}), Tally(1, 0, 0, {"changed": 1}),
    ]  # fmt: skip
    assert ([envelopes.decode(row).value for row in bench.live().values()], bitmap(bench)) == ([b"2"], {0})
    (kept,) = bench.log.read(DISCARDED)
    assert (kept.value(), dict(kept.headers() or [])[names.ACTION_BEFORE]) == (records[0].value(), b"superseded")
    (told, *_), *_ = (orjson.loads(record.value() or b"")["letters"] for record in bench.log.read(AUDIT))
    assert told["before"] == digest_content(records[0].key(), records[0].value(), records[0].headers())
    assert told["after"] == digest_content(b"k", b"2", [("trace", b"1")])


@pytest.mark.parametrize("first", ["retry", "edit"])
def test_an_edit_of_a_letter_that_was_returned_meanwhile_is_told_that_it_has_changed(bench: Bench, first: str) -> None:
    parking = put_resting(bench, 1)
    ((record, _),) = parking.records.values()
    bench.ask(first, [edit(0, record, b"1")], parking=PARKING)
    bench.now_ms += 1
    bench.ask("edit", [edit(0, record)], parking=PARKING, action=OTHER)
    bench.finish()
    assert (bench.tally.done, bench.state(OTHER).tally) == (1, Tally(1, 0, 0, {"changed": 1}))
    assert len(bench.live()) == 1


def test_what_must_not_be_returned_is_refused_whoever_asks(bench: Bench) -> None:
    former = with_headers(park_letter(dead(offset=0)), action_before=b"superseded")
    bench.ask_parked = Parking(former, park_letter(dead(offset=1)))
    ask(bench, 0, 1)
    bench.finish()
    assert (bench.tally, sources(bench.live()), bitmap(bench)) == (Tally(1, 1, 0, {"superseded": 1}), [1], {1})


def test_what_is_discarded_is_told_to_nobody_as_a_send(bench: Bench) -> None:
    put_resting(bench, 1)
    ask(bench, 0, kind="discard")
    bench.finish()
    assert [record.value()[1:] for record in bench.log.read("lineage")] == []


def test_letters_of_other_blocks_and_partitions_have_marks_of_their_own(bench: Bench) -> None:
    far = returned_offsets.OFFSETS_A_BLOCK + 3
    places = [place(3), place(4), place(far), place(3, 1)]
    parking = Parking()
    parking.records = {key: (park_letter(dead(offset=n)),) * 2 for n, key in enumerate(places)}
    bench.ask_parked = parking
    for n, key in enumerate(places):
        bench.now_ms += 1
        bench.ask("retry", [Member(key, NOW_MS)], parking=PARKING, action=bytes([n + 1]) * len(OTHER))
        bench.finish()
    assert sources(bench.live()) == [0, 1, 2, 3]
    for key in places:
        where = returned_offsets.decode_place(key)
        assert returned_offsets.is_offset_returned(bench.table.get(where.block()), where.offset)


def test_each_is_put_into_its_own_shard_and_stamped_when_it_is_put() -> None:
    letters = [returns().return_letter(state("retry"), record, record, NOW_MS, NOW_MS)
               for record in (park_letter(dead(key=key)) for key in (b"k", b"other", None))]  # fmt: skip
    back = [letter for letter in letters if isinstance(letter, ActedLetter)]
    entries, shards = slice_members.list_puts(back, "changelog")
    assert len(set(shards)) > 1
    assert shards == [letter.shard for letter in back]
    # Whatever is old by its own time would be taken away, or refused, by brokers.
    assert [(e.destination, e.key, e.value, e.headers, e.timestamp_ms) for e in entries] == [
        ("changelog", letter.key, letter.envelope, [], None) for letter in back
    ]


@pytest.mark.parametrize("kind", ["retry", "discard"])
def test_it_waits_for_the_policy_file_that_it_names_and_is_held_where_that_does_not_come(bench: Bench, kind: str) -> None:
    put_resting(bench, 2)
    ask(bench, 0, kind=kind, policies="sha of another")
    bench.now_ms += 1
    ask(bench, 1, action=OTHER, policies=POLICIES)
    assert bench.finish() == [1]
    assert bench.state(OTHER).tally.done == 1, "what names this worker's file does not wait with it"
    told = f"waits for the policy file with sha256 sha of another; this worker's has {POLICIES}"
    assert bench.work.describe_waiting(POLICIES) == f"action {ACTION.hex()} {told}"
    bench.now_ms += WAIT_MS - 2
    assert bench.finish() == []
    # Whoever owns the shard next waits anew.
    bench.open()
    assert bench.finish() == []
    bench.now_ms += WAIT_MS
    bench.finish()
    held = bench.state().held
    assert held is not None
    assert (held.by, held.reason, held.policies, bench.tally) == ("worker", f"it {told}", POLICIES, Tally())
    assert bench.work.describe_waiting(POLICIES) == ""
    # To be resumed means that this file will do.
    resumed = Order("anna", bench.now_ms, hold=held.at_ms, policies=held.policies)
    bench.write((action_records.build_resumed_key(ACTION), action_records.encode(resumed)))
    assert bench.finish() == [1]


def test_what_was_asked_for_before_the_changelog_grew_is_held_and_asked_for_again_it_is_returned_once(bench: Bench) -> None:
    put_resting(bench, 3)
    ask(bench, 0)
    assert bench.finish() == [1]
    bench.now_ms += 1
    ask(bench, 1, 2, action=OTHER)
    # The worker begins anew, and knows the second partition; whoever asked did not.
    bench.log.topics["changelog"].append(MemoryPartition("changelog", 1))
    bench.shards = 2
    bench.open()
    bench.finish()
    held = bench.state(OTHER).held
    assert held is not None
    assert (held.reason, bench.state(OTHER).tally) == (GROWN.format(asked=1, now=2), Tally())
    bench.now_ms += 1
    third = b"\x0c" * len(OTHER)
    ask(bench, 0, 1, 2, action=third, shards=2)
    bench.finish()
    # What was returned before the changelog grew is known still.
    assert bench.state(third).tally == Tally(1, 2, 0, {"returned": 1})
    assert bitmap(bench) == {0, 1, 2}


def test_what_waits_is_acted_on_whatever_number_of_shards_there_is(bench: Bench) -> None:
    keys = bench.wait(1)
    bench.shards = 2
    bench.ask("retry", [Member(keys[0], NOW_MS)])
    assert bench.finish() == [1]


def test_an_erase_and_an_action_that_names_no_policy_file_wait_for_none(bench: Bench) -> None:
    put_resting(bench, 2)
    ask(bench, 0, kind="erase", policies="sha of another")
    bench.now_ms += 1
    ask(bench, 1, action=OTHER)
    assert bench.finish() == [1, 1]


def test_a_worker_without_parking_topics_finds_nothing(bench: Bench) -> None:
    ask(bench, 0)
    bench.finish()
    assert bench.tally == Tally(1, 0, 1, {})


def test_a_bitmap_that_cannot_be_read_is_passed_over_and_what_was_returned_is_not_returned_again(bench: Bench) -> None:
    put_resting(bench, 1)
    ask(bench, 0)
    bench.finish()
    bench.write((returned_offsets.ParkedPlace(TOPIC_HASH, 0, 0).block(), b"\x01short"))
    bench.now_ms += 1
    ask(bench, 0, action=OTHER)
    bench.finish()
    assert (bench.tally, bench.state(OTHER).tally) == (Tally(1, 1, 0, {}), Tally(1, 0, 0, {"returned": 1}))
