"""Parking what its topic refuses: an entry that was put back for what it is, is due again, and is refused once more.

First it is found out which of such entries are still refused, each by itself, in transactions that are thrown away: so no other
entry waits for them, and none is parked for another's fault. Those that are taken by now go at the next sweep. Of the others, and
what a crash after each step costs:

1. begin a transaction                                                              nothing
2. put each under its key in the lane of its parking topic, with the reason, and a
   null for its key; of what recurs put the next run; tell the record of lineages   nothing: all are undone
3. commit                                                                           nothing: all stand, and the fold finds both
4. drop the old rows from the table                                                 nothing: the fold finds the nulls

What is to be parked already, or could only be parked without its payload, is held in place of that: see `retry.delivery.hold`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from retry.clock import Deadline
from retry.dead_letters import retry_headers as names
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.entry_keys import NAMED
from retry.delay_queue.envelopes import Entry, Named
from retry.delay_queue.table.interface import ChangelogRow
from retry.delivery.admission import Admission
from retry.delivery.due_batch import DueRow
from retry.delivery.movers import MoveContext, TakenKeys
from retry.delivery.redecide import Redecision
from retry.delivery.refusals import diagnose, find_refused_entries
from retry.delivery.sweep import ChangelogPartition
from retry.delivery.transaction_batch import DEFER_MS, renew_timestamp
from retry.kafka.record_limits import RecordRefusal, RefusedFor
from retry.kafka.refused_records import Anchor
from retry.policies.tasks import TEAM as TASKS

REFUSED = "refused"
# No more than a sweep may take; who was not tried by then is put back once more.
_TRY_S = 4.0
_WHY_CHARS_MAX = 500
_UNTRIED = "it was not tried in time whether its topic takes it by now"


class Verdicts(NamedTuple):
    """Decisions about entries that were refused before.

    Attributes:
      rows: what else is put beside `moves`, keys and envelopes, and nulls for what ends with that.
      held: those that cannot be parked, where each goes to, and why it is refused.
      settled: keys of those of which it is known whether they are refused.
    """

    moves: list[Redecision]
    rows: list[ChangelogRow]
    held: list[tuple[DueRow, str, str]]
    settled: list[bytes]


def judge_refused(rows: Sequence[DueRow], taken: TakenKeys, changelog: ChangelogPartition, context: MoveContext) -> Verdicts:
    """Decide about entries whose topics have refused them; raises SealUnopened, EntryUnreadable, TransactionFailed."""
    codec = context.codec
    entries = [codec.decode(*row) for row in rows]
    tried = [_as_sent(row, entry, context.admission) for row, entry in zip(rows, entries, strict=True)]
    refused = _try_each(tried, rows, changelog, context)
    verdicts = Verdicts([], [], [], [])
    for n, (key, envelope) in enumerate(rows):
        if n not in refused:
            verdicts.settled.append(key)
        elif (why := refused[n]) is None:
            put_back = taken.claim(entry_keys.make_key_due_at(key, context.now_ms + DEFER_MS))
            verdicts.rows.extend([(put_back, envelope), (key, None)])
        else:
            verdicts.settled.append(key)
            _add_verdict(verdicts, (key, envelope), entries[n], why[:_WHY_CHARS_MAX], taken, context)
    return verdicts


def find_refused(rows: Sequence[DueRow], changelog: ChangelogPartition, context: MoveContext) -> dict[bytes, tuple[str, str]]:
    """Find held entries that are still refused: by key, where each goes to, and why not. Raises what `judge_refused` does."""
    codec = context.codec
    opened = [(row, entry) for row in rows if _is_final(entry := codec.decode(*row), context)]
    entries = [renew_timestamp(entry) for _, entry in opened]
    refused = _try_each(entries, [row for row, _ in opened], changelog, context)
    return {opened[n][0][0]: (entries[n].destination, why or _UNTRIED) for n, why in refused.items()}


def _is_final(entry: Entry, context: MoveContext) -> bool:
    # It goes where it rests, and can be parked nowhere else.
    return entry.destination == context.discarded or any(name == names.PARKED_REASON for name, _ in entry.headers)


def _as_sent(row: DueRow, entry: Entry, admission: Admission) -> Entry:
    lane = admission.lanes.get(entry_keys.lane_of(row[0]))
    return renew_timestamp(entry) if lane is not None and admission.renews_timestamp(lane) else entry


def _try_each(
    entries: list[Entry], rows: Sequence[DueRow], changelog: ChangelogPartition, context: MoveContext
) -> dict[int, str | None]:
    """Which of some entries are refused, by position, and why; None where that was not found out in time."""
    find_refused = partial(context.admission.record_limits.probe_records, may_compress=True)
    known = find_refused_entries(entries, find_refused, context.now_ms)
    refused = {n: refusal.why if is_for_good(refusal) else None for n, refusal in known.items()}
    left = [n for n in range(len(entries)) if n not in known]
    refused |= dict.fromkeys(left)
    deadline = Deadline(_TRY_S)
    # Mostly the first try says that all are taken. One that is refused is tried by itself: it may have been for another's fault.
    suspects = _diagnose(left, entries, rows, changelog, context)
    for n in left:
        if n not in suspects:
            del refused[n]
        elif not deadline.has_passed():
            found = suspects if len(left) == 1 else _diagnose([n], entries, rows, changelog, context)
            refusal = found.get(n)
            if refusal is None:
                del refused[n]
            elif is_for_good(refusal):
                refused[n] = refusal.why
    return refused


def is_for_good(refusal: RecordRefusal) -> bool:
    """Whether an entry is refused for what it is itself, and not for what may have changed when it is tried again."""
    return refusal.cause in (RefusedFor.TIME, RefusedFor.CONTENT)


def _diagnose(
    positions: Sequence[int], entries: list[Entry], rows: Sequence[DueRow], changelog: ChangelogPartition, context: MoveContext
) -> dict[int, RecordRefusal]:
    """Find out which entries are refused of some that are tried together; of a target that takes nothing all are."""
    if not positions:
        return {}
    anchor = Anchor(*changelog, rows[positions[0]][0])
    tried, writer = [entries[n] for n in positions], context.writer
    targets, single = diagnose(tried, writer, context.admission, context.now_ms, anchor, compressing=writer.open_compressing)
    for target, why in targets.items():
        context.admission.note_refused(target, why, context.now_ms)
    refused = {positions[at]: refusal for at, refusal in single.items()}
    nothing_known = {n: entries[n].destination for n in positions if entries[n].destination in targets}
    return refused | {n: RecordRefusal(RefusedFor.SIDE_TOPIC, targets[to]) for n, to in nothing_known.items()}


def _add_verdict(verdicts: Verdicts, row: DueRow, entry: Entry, why: str, taken: TakenKeys, context: MoveContext) -> None:
    key, envelope = row
    if _is_final(entry, context):
        verdicts.held.append((row, entry.destination, why))
    elif key[0] == NAMED:
        verdicts.rows.extend(_park_named(key, entry, why, taken, context))
    elif (move := _park_letter(key, envelope, entry, why, taken, context)) is not None:
        verdicts.moves.append(move)
        taken.add_key(move.packed.key)
    else:
        verdicts.held.append((row, entry.destination, why))


def _park_letter(
    key: bytes, envelope: bytes, entry: Entry, why: str, taken: TakenKeys, context: MoveContext
) -> Redecision | None:
    move = context.redecider.park_entry(key, envelope, context.now_ms, REFUSED, taken)
    if move is None or move.loses_value:
        return None
    action = next((value for name, value in entry.headers if name == names.ACTION), None)
    marks = [(names.PARKED_FAULT, why.encode()), *([(names.ACTION, action)] if action is not None else [])]
    return context.redecider.set_headers(move, *marks)


def _park_named(key: bytes, entry: Entry, why: str, taken: TakenKeys, context: MoveContext) -> list[ChangelogRow]:
    codec, now_ms = context.codec, context.now_ms
    tasks = context.redecider.registry.tasks
    to = (tasks and entry.team == TASKS and tasks.park_to) or context.redecider.entry_builder.parked
    source = entry_keys.read_source(key)
    reason = [(names.PARKED_REASON, REFUSED.encode()), (names.PARKED_FAULT, why.encode())]
    parked = msgspec.structs.replace(entry, destination=to, headers=entry.headers + reason)
    lane, plan = entry_keys.build_named_lane(entry.team, source.topic, to), entry.plan if isinstance(entry, Named) else None
    if plan is None:
        # A millisecond later: of one version that counts which is due last.
        new = taken.claim(entry_keys.make_key_due_at(entry_keys.move_into_lane(key, lane), entry_keys.due_at_ms(key) + 1))
        return [(new, codec.encode(new, parked)), (key, None)]
    rows: list[ChangelogRow] = [(key, None)]
    if (run := envelopes.find_next_run(plan, entry_keys.due_at_ms(key), now_ms)) is not None:
        due_at_ms, number = run
        headers = envelopes.make_run_headers(entry.headers, due_at_ms, number)
        following = msgspec.structs.replace(entry, plan=msgspec.structs.replace(plan, run=number), headers=headers)
        next_key = entry_keys.make_key_due_at(key, due_at_ms)
        rows.insert(0, (next_key, codec.encode(next_key, following)))
    # Under a name of its own: it is no run that counts any more.
    name = entry_keys.hash_name(f"{TASKS} parked", source.topic, key)
    stem = entry_keys.build_key_stem(source.topic, source.partition)
    new = taken.claim(entry_keys.build_named_key(now_ms, name, source.offset, stem, source.offset, lane))
    return [(new, codec.encode(new, msgspec.structs.replace(parked, plan=None))), *rows]
