"""Rules of what operators ask for, switched off one at a time; see `mutants`.

| mutant | what it does |
| --- | --- |
| slice-apart | the slice of an action ends in the transaction after that in which its letters are moved |
| tally-apart | what is counted of an action is counted in the transaction after that |
| outcome-apart | what an action decided of its letters is told in the transaction after that |
| bitmap-apart | which letters were returned is marked in the transaction after that |
| bitmap-unseen | letters are returned whether they are marked or not |
| edit-unseen | an edit is made whatever the letter is by then |
| returned-edit-unseen | an edit of a letter that rests is made of whatever lies there |
| same-key | what is only changed keeps its key, which gets a null in the same transaction |
| moved-onto-another | what is moved takes the key of another letter that waits |
| returned-onto-another | what is returned takes the key of another letter that waits, or is returned with it |
| same-times | letters that rest and have the same coordinates are returned at the same time |
| another-policies | what goes by the policy file that an action names is done by any |
| acted-unsettled | the next slice is worked off before the fold has told of the last one |
| acted-early | slices are worked off before the table is restored |
| incomplete-begun | an action is begun though slices of it are missing |
| step-without-tally | what failed again after a step is counted in the next transaction that takes in such letters |
| tally-untold | whoever judges a step is told of a tally of another shard in the transaction after that |
| step-unjudged | slices of a step are worked off before the one before it is judged |
| sent-unseen | a step's letters count as sent when they are put |
| erased-whole | what is left of an erased letter has its payload |
| erased-returned | what is left of an erased letter is returned as any other |
| pause-without-end | a pause does not end by itself |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

import msgspec

from retry.dead_letters import retry_headers as names
from retry.delay_queue import action_records, entry_keys, returned_offsets
from retry.delay_queue.control_records import Pause
from retry.delay_queue.ramp_records import HOME, Step
from retry.delivery import act_records, letter_changes, slice_members
from retry.delivery.act import Acting
from retry.delivery.acted_entry import EntryActions, hash_envelope
from retry.delivery.letter_changes import Refusal
from retry.delivery.movers import TakenKeys
from retry.delivery.ramp_runner import RampRunner
from retry.delivery.returned_letter import LetterReturns
from retry.delivery.slice_members import RestingLetters
from retry.intake.intake import Intake
from retry.operations.act import request
from retry.worker.shards import joint_sweep
from retry.worker.shards.restore import Phase
from retry.worker.shards.shard import Shard

Patches = list[Any]


def _apart(belongs: Callable[[bytes], bool]) -> Patches:
    """Write what an action writes under some keys in the next transaction of its shard."""
    original, late = Acting._commit, WeakKeyDictionary[Acting, list[Any]]()

    def commit(acting: Acting, context: Any, work: Any) -> None:
        now, before = [row for row in work.rows if not belongs(row[0])], late.pop(acting, [])
        if len(now) < len(work.rows):
            late[acting] = [row for row in work.rows if belongs(row[0])]
        original(acting, context, work._replace(rows=before + now))

    return [patch.object(Acting, "_commit", commit)]


def _outcome_apart() -> Patches:
    original, late = act_records.build_outcomes, list[Any]()

    def build_outcomes(state: Any, results: Any, now_ms: int) -> Any:
        before, late[:] = late[:], original(state, results, now_ms)
        return before

    return [patch.object(act_records, "build_outcomes", build_outcomes)]


def _same_key() -> Patches:
    original = EntryActions._move_entry

    def move_under_same_key(actions: Any, state: Any, key: bytes, was: Any, entry: Any, due_at_ms: int, lane: Any = None) -> Any:
        acted = original(actions, state, key, was, entry, due_at_ms, lane)
        if due_at_ms != entry_keys.due_at_ms(key) + 1:
            return acted
        packed = msgspec.structs.replace(acted.move.packed, key=key)
        return acted._replace(key=key, move=acted.move._replace(packed=packed))

    return [patch.object(EntryActions, "_move_entry", move_under_same_key)]


def _acted_early() -> Patches:
    select, hold = joint_sweep._select, Shard.acquire_sweep_lock

    def is_free_to_act(shard: Shard) -> bool:
        if shard.phase is not Phase.RESTORING:
            return hold(shard)
        return shard.table.has_slices and shard._sweeping.acquire(blocking=False)

    def select_early(shard: Shard, writer: Any, shard_context: Any, now_ms: int, *limits: int) -> Any:
        if shard.phase is Phase.RESTORING:
            shard.moves.move_batch(writer, shard_context, now_ms)
            return None
        return select(shard, writer, shard_context, now_ms, *limits)

    def is_idle(shard: Shard, now_ms: int) -> bool:
        return shard.phase is not Phase.RESTORING and shard.quiet(now_ms)

    parts = (joint_sweep, "_select", select_early), (Shard, "acquire_sweep_lock", is_free_to_act), (Shard, "is_idle", is_idle)
    return [patch.object(*part) for part in parts]


def _edit_unseen() -> Patches:
    original = EntryActions._edit_entry

    def edit_with_own_digest(actions: Any, state: Any, member: Any, entry: Any, envelope: bytes) -> Any:
        return original(actions, state, msgspec.structs.replace(member, digest=hash_envelope(envelope)), entry, envelope)

    return [patch.object(EntryActions, "_edit_entry", edit_with_own_digest)]


def _step_without_tally() -> Patches:
    original, late = Intake._mark, WeakKeyDictionary[Intake, list[Any]]()

    def mark(intake: Intake, case: Any, now_ms: int, to: Any) -> None:
        rows, before = to.entries[HOME], late.pop(intake, [])
        count = len(rows)
        original(intake, case, now_ms, to)
        late[intake] = rows[count:]
        rows[count:] = before

    return [patch.object(Intake, "_mark", mark)]


def _step_unjudged() -> Patches:
    original = Acting._find_open_slice
    return [patch.object(Acting, "_find_open_slice", lambda acting, state: original(acting, state._replace(step=Step(1 << 14))))]


def _tally_untold() -> Patches:
    original, late = RampRunner._copy_tally, WeakKeyDictionary[RampRunner, list[Any]]()

    def keep_tally(climbing: RampRunner, state: Any, tally: Any) -> list[Any]:
        before, late[climbing] = late.get(climbing, []), original(climbing, state, tally)
        return before

    return [patch.object(RampRunner, "_copy_tally", keep_tally)]


def _sent_unseen() -> Patches:
    class Empty:
        def __init__(self, table: Any) -> None:
            self._table = table

        def get(self, _key: bytes) -> None:
            return None

        def __getattr__(self, name: str) -> Any:
            return getattr(self._table, name)

    original = RampRunner.__init__
    return [patch.object(RampRunner, "__init__", lambda climbing, shard, table: original(climbing, shard, Empty(table)))]


def discard_whole(entry: Any, discarded: str) -> Any:
    return msgspec.structs.replace(entry, destination=discarded)


def _erased_returned() -> Patches:
    original = LetterReturns.find_refusal

    def refuse_other_than_erased(returns: Any, record: Any) -> Any:
        found = original(returns, record)
        return None if found == Refusal(names.ERASED.decode()) else found

    return [patch.object(LetterReturns, "find_refusal", refuse_other_than_erased)]


ACTION_MUTANTS: dict[str, Callable[[], Patches]] = {
    "slice-apart": lambda: _apart(lambda key: key[:1] == action_records.SLICE),
    "tally-apart": lambda: _apart(lambda key: key.endswith(b"/tally")),
    "outcome-apart": _outcome_apart,
    "bitmap-apart": lambda: _apart(lambda key: key[:1] == returned_offsets.RETURNED),
    "bitmap-unseen": lambda: [patch.object(returned_offsets, "is_offset_returned", lambda _bitmap, _offset: False)],
    "edit-unseen": _edit_unseen,
    "returned-edit-unseen": lambda: [patch.object(LetterReturns, "find_edit_refusal", lambda *_: None)],
    "same-key": _same_key,
    "moved-onto-another": lambda: [patch.object(TakenKeys, "__call__", lambda *_: False)],
    "returned-onto-another": lambda: [patch.object(RestingLetters, "_is_taken", lambda *_: False)],
    "same-times": lambda: [patch.object(request, "_find_duplicates", lambda _: set())],
    "another-policies": lambda: [patch.object(slice_members, "goes_by", lambda _: False)],
    "acted-unsettled": lambda: [patch.object(Acting, "is_settled", lambda *_: True)],
    "acted-early": _acted_early,
    "step-without-tally": _step_without_tally,
    "tally-untold": _tally_untold,
    "step-unjudged": _step_unjudged,
    "sent-unseen": _sent_unseen,
    "incomplete-begun": lambda: [patch.object(Acting, "_is_complete", lambda *_: True)],
    "erased-whole": lambda: [patch.object(letter_changes, "redact_entry", discard_whole)],
    "erased-returned": _erased_returned,
    "pause-without-end": lambda: [patch.object(Pause, "stands", lambda *_: True)],
}
