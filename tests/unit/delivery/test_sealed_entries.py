"""Whatever is done to entries that are sealed is what is done to those in clear, and leaves nothing of them in clear."""

from __future__ import annotations

import msgspec
import orjson
import pytest

from retry.dead_letters import retry_headers as names
from retry.delay_queue import action_records, control_records, entry_keys, envelopes
from retry.delay_queue.action_records import Member, Patch
from retry.delay_queue.control_records import Reschedule
from retry.delay_queue.entry_keys import HELD, NULLS
from retry.delay_queue.envelopes import Entry, SealedEnvelope
from retry.delivery.act_records import digest_content, list_digests, make_audit_records
from retry.delivery.acted_entry import hash_envelope
from retry.delivery.cancel import Cancelling
from retry.delivery.letter_changes import SEALED, ActedLetter, Refusal
from retry.delivery.reschedule import Rescheduling
from tests.support import acted, rested
from tests.support.acted import ACTION, DISCARDED, NOW_MS, move_context
from tests.support.bench import CHANGELOG, Bench
from tests.support.sealed import NEW, OLD, KeyFile

CANARY = b"canary-4711"
VALUE = b'{"card":"canary-4711"}'
KINDS = [
    (action_records.RETRY, {}), (action_records.PARK, {}), (action_records.DISCARD, {}), (action_records.ERASE, {}),
    (action_records.REDIRECT, {"target": "orders.slow"}), (action_records.PATCH, {"patch": Patch({"who": "anna"}, '{"b":1}')}),
]  # fmt: skip


@pytest.fixture
def file() -> KeyFile:
    return KeyFile(OLD)


def letter(topic: str = "orders.DLT", offset: int = 7) -> tuple[bytes, Entry]:
    """A letter with a payload that nobody may see."""
    return acted.letter(topic, offset, key=CANARY, value=VALUE)


def done(
    file: KeyFile, kind: str, key: bytes, envelope: bytes, member: Member | None = None, **more: object
) -> ActedLetter | Refusal:
    """Do an action to a sealed entry and return what it makes of it."""
    actions = acted.entry_actions(codec=file.codec)
    return actions.act_on_entry(acted.state(kind, **more), member or acted.member(key), envelope, NOW_MS)


@pytest.mark.parametrize("topic", ["orders.DLT", "keyed.DLT"])
@pytest.mark.parametrize(("kind", "more"), KINDS, ids=[kind for kind, _ in KINDS])
def test_an_action_does_what_it_does_in_clear_and_what_it_writes_is_sealed(
    file: KeyFile, topic: str, kind: str, more: dict[str, object]
) -> None:
    if topic == "keyed.DLT" and kind == action_records.REDIRECT:
        more = {"target": "keyed.retry"}
    key, entry = letter(topic)
    sealed = done(file, kind, key, file.codec.encode(key, entry), **more)
    clear = done(file, kind, key, acted.pack_entry(entry), **more)
    assert isinstance(sealed, ActedLetter)
    assert isinstance(clear, ActedLetter)
    new, envelope = sealed.key, sealed.envelope
    assert (new, sealed.entry, sealed.moved, sealed.kept) == (clear.key, clear.entry, clear.moved, clear.kept)
    assert isinstance(envelopes.decode_routing(envelope), SealedEnvelope)
    assert CANARY not in envelope
    assert file.codec.decode(new, envelope) == clear.entry


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS] + [action_records.EDIT, action_records.UNDO])
def test_nothing_is_done_to_what_cannot_be_opened_or_is_held(file: KeyFile, kind: str) -> None:
    key, entry = letter()
    envelope = file.codec.encode(key, entry)
    held = entry_keys.move_into_lane(key, HELD[key[0]])
    assert done(file, kind, held, envelope) == Refusal(SEALED)
    file.write(NEW)
    assert done(file, kind, key, envelope) == Refusal(SEALED)


def test_an_edit_is_sealed_for_its_letter_and_names_the_bytes_that_it_was_made_of(file: KeyFile) -> None:
    key, entry = letter()
    envelope = file.codec.encode(key, entry)
    edited = msgspec.structs.replace(entry, value=b'{"card":"canary-4711","a":2}')
    member = Member(key, NOW_MS, hash_envelope(envelope), file.codec.encode(key, edited))
    assert CANARY not in action_records.encode_slice([member], NOW_MS)
    made = done(file, action_records.EDIT, key, envelope, member)
    assert isinstance(made, ActedLetter)
    assert (made.entry.value, CANARY in made.envelope) == (edited.value, False)
    # Of an equal letter that was sealed once more the digest is another: it tells nothing of what is sealed.
    again = file.codec.encode(key, entry)
    assert hash_envelope(again) != hash_envelope(envelope)
    assert done(file, action_records.EDIT, key, again, member) == Refusal("changed")
    # Made for one letter, it is none for another.
    other, _ = letter(offset=8)
    envelope = file.codec.encode(other, entry)
    foreign = Member(other, NOW_MS, hash_envelope(envelope), member.envelope)
    assert done(file, action_records.EDIT, other, envelope, foreign) == Refusal(SEALED)


def test_a_discarded_letter_that_is_sealed_can_be_undone(file: KeyFile) -> None:
    key, entry = letter()
    gone = done(file, action_records.DISCARD, key, file.codec.encode(key, entry))
    assert isinstance(gone, ActedLetter)
    back = done(file, action_records.UNDO, gone.key, gone.envelope, undoes=ACTION.hex())
    assert isinstance(back, ActedLetter)
    assert (back.entry.destination, back.entry.value) == (entry.destination, VALUE)


def test_a_letter_that_rested_waits_sealed(file: KeyFile) -> None:
    dead = rested.dead(key=CANARY, value=VALUE)
    record = rested.park_letter(dead)
    returns = rested.returns(codec=file.codec)
    made = returns.return_letter(acted.state(action_records.RETRY), record, record, NOW_MS, NOW_MS)
    assert isinstance(made, ActedLetter)
    assert CANARY not in made.envelope
    assert file.codec.decode(made.key, made.envelope).value == VALUE
    erased = returns.erase_letter(acted.state(action_records.ERASE), record, record, NOW_MS)
    assert erased is not None
    assert file.codec.decode(erased.key, erased.envelope).value is None


def test_the_audit_has_digests_that_nobody_makes_without_the_key(file: KeyFile) -> None:
    key, entry = letter()
    member = acted.member(key)
    asked = acted.state(action_records.PATCH, patch=Patch({}, '{"b":1}'))
    made = acted.entry_actions(codec=file.codec).act_on_entry(asked, member, file.codec.encode(key, entry), NOW_MS)
    assert isinstance(made, ActedLetter)
    (record,) = make_audit_records(asked, [(member, made)], "audit", 0, NOW_MS, file.codec)
    (told,) = orjson.loads(record.value or b"")["letters"]
    assert told["before"] == digest_content(CANARY, VALUE, entry.headers, file.codec)
    assert told["before"].startswith("old:")
    assert told["before"].removeprefix("old:") != digest_content(CANARY, VALUE, entry.headers)
    file.write(NEW, OLD)
    assert told["before"] in list_digests(CANARY, VALUE, entry.headers, file.codec), "found again under each key"
    switched_off = KeyFile("plain", NEW).codec
    assert digest_content(CANARY, VALUE, entry.headers, switched_off) == digest_content(CANARY, VALUE, entry.headers)


class Shard(Bench):
    """One shard whose entries are sealed, and what moves them."""

    def __init__(self, file: KeyFile) -> None:
        super().__init__(codec=file.codec)
        for topic in ("lineage", "orders.retry", "orders.parked"):
            self.log.create(topic, 2)
        self.redecider = acted.entry_actions(codec=file.codec).redecider
        self.nulls = Cancelling(CHANGELOG, self.table)

    def wait(self, offset: int) -> bytes:
        key, entry = letter(offset=offset)
        self.write([(key, self.codec.encode(key, entry))])
        return key

    def null(self, offset: int) -> None:
        """A null that cancels, as intake makes one."""
        key, entry = letter(offset=offset)
        reason = names.set_in(entry.headers, (names.PARKED_REASON, b"null_value"))
        null = msgspec.structs.replace(entry, value=None, destination="orders.parked", headers=reason)
        key = entry_keys.move_into_lane(key, NULLS)
        self.write([(key, self.codec.encode(key, null))])

    def follow(self, now_ms: int = NOW_MS) -> bool:
        """Follow nulls for a while; whether they were."""
        for _ in range(20):
            ended = self.nulls.move_batch(move_context(self.writer, self.redecider, now_ms)).has_ended
            self.fold()
            if ended:
                return True
        return False

    def reasons(self) -> list[bytes | None]:
        entries = (self.codec.decode(key, envelope) for key, envelope in self.live().items())
        return sorted(dict(entry.headers).get(names.PARKED_REASON) or b"" for entry in entries)


def test_nulls_wait_until_all_can_be_opened_that_they_may_be_about(file: KeyFile, caplog: pytest.LogCaptureFixture) -> None:
    shard = Shard(file)
    shard.wait(1)
    file.write(NEW, OLD)
    shard.wait(2)
    shard.null(3)
    file.write(NEW)
    assert not shard.follow()
    assert "nulls that cancel wait" in caplog.text
    assert CANARY.decode() not in caplog.text
    file.write(NEW, OLD)
    assert not shard.follow(NOW_MS + 29_000)
    assert shard.follow(NOW_MS + 31_000)
    assert shard.reasons() == [b"cancelled", b"cancelled", b"null_value"]
    assert all(isinstance(envelopes.decode_routing(envelope), SealedEnvelope) for envelope in shard.live().values())


def test_a_null_that_cannot_be_opened_waits_too(file: KeyFile) -> None:
    shard = Shard(file)
    shard.null(3)
    file.write(NEW)
    shard.wait(1)
    assert not shard.follow()
    file.write(NEW, OLD)
    assert shard.follow(NOW_MS + 31_000)
    assert shard.reasons() == [b"cancelled", b"null_value"]


def test_nulls_cancel_what_is_held_and_can_be_opened_again(file: KeyFile) -> None:
    shard = Shard(file)
    key = shard.wait(1)
    held, envelope = entry_keys.move_into_lane(key, HELD[key[0]]), shard.live()[key]
    # Before it lies one of another topic, which is no reason to pass over the lane.
    stranger = entry_keys.move_into_lane(entry_keys.build_key(NOW_MS, entry_keys.build_key_stem("a.DLT", 0), 1), HELD[key[0]])
    shard.write([(held, envelope), (key, None), (stranger, envelope)])  # type: ignore[list-item]
    shard.null(3)
    assert shard.follow()
    assert not any(map(entry_keys.is_held, set(shard.live()) - {stranger}))


def test_what_cannot_be_opened_is_not_rescheduled_and_is_when_it_can(file: KeyFile) -> None:
    shard = Shard(file)
    keys = [shard.wait(n) for n in range(3)]
    file.write(NEW)

    def reschedule(since_ms: int) -> set[bytes]:
        """Have all decided anew; the keys that have moved."""
        request = control_records.reschedule_key(since_ms)
        asked = control_records.encode(Reschedule(since_ms, policies=shard.redecider.digest))
        shard.write([(request, asked)])
        work = Rescheduling(CHANGELOG, shard.table)
        for _ in range(9):
            if work.move_batch(move_context(shard.writer, shard.redecider, NOW_MS)).has_ended:
                break
        shard.fold()
        return set(keys) - set(shard.live())

    # The policy file says one hour after the failure, and they wait as long: only what is put elsewhere moves.
    assert reschedule(NOW_MS) == set()
    file.write(NEW, OLD)
    for key in keys:
        shard.write([(entry_keys.make_key_due_at(key, NOW_MS + 9), shard.live()[key]), (key, None)])  # type: ignore[list-item]
    keys = [entry_keys.make_key_due_at(key, NOW_MS + 9) for key in keys]
    assert reschedule(NOW_MS + 1) == set(keys)
    assert not any(CANARY in envelope for envelope in shard.live().values())


def test_kept_copies_go_to_the_topic_of_discarded_letters(file: KeyFile) -> None:
    key, entry = letter()
    made = done(file, action_records.PATCH, key, file.codec.encode(key, entry), patch=Patch({}, '{"b":1}'))
    assert isinstance(made, ActedLetter)
    assert made.kept is not None
    assert (made.kept.destination, made.kept.value) == (DISCARDED, VALUE)
