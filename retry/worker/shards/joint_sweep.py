"""Sweeps several shards in one transaction, so that many shards cost the brokers no more than few.

Two such sweeps may be under way, each with a producer and shards of its own, so that one is gathered while the other is
committed. Where much is due, each takes half of the shards, and the same part of a batch from each. A shard whose sweeps were
undone twice is swept alone until one goes through, so that what is wrong with it holds up no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from retry import clock
from retry.delivery import sweep, webhook_calls
from retry.delivery.due_batch import give_back
from retry.delivery.sweep import NOTHING, ShardBatch, SweepContext, SweepResult
from retry.delivery.webhooks_in_flight import WebhooksInFlight
from retry.errors import TransactionFailed
from retry.kafka.interface import SweepProducer
from retry.worker.shards.restore import Phase, ShardContext
from retry.worker.shards.shard import Shard

# A batch of less than this part of the largest one has left nothing behind that cannot wait for the next look.
_FULL = 8
# Sweeps at a time.
AT_ONCE = 2


def joint_sweep(shards: Sequence[Shard], writer: SweepProducer, shard_context: ShardContext, now_ms: int) -> list[SweepResult]:
    """Deliver one batch of what is due in some shards, those that were swept longest ago first, and return how it went in each.

    What goes wrong changes the phases of the shards that it concerns.
    """
    held: list[Shard] = []
    try:
        parts = _select_parts(shards, held, writer, shard_context, now_ms)
        swept = _deliver_parts(parts, SweepContext(writer, shard_context.admission, now_ms, shard_context.codec), shard_context)
        for shard in held:
            _call(shard, writer, shard_context, now_ms)
        return swept
    finally:
        for shard in held:
            shard.release()


def is_full(swept: Sequence[SweepResult], shard_context: ShardContext) -> bool:
    """Whether a batch was so large that the next one should not wait: every transaction costs the brokers the same."""
    return sum(len(each.sent) + each.superseded for each in swept) >= shard_context.rows_max // _FULL


def _select_parts(
    shards: Sequence[Shard], held: list[Shard], writer: SweepProducer, shard_context: ShardContext, now_ms: int
) -> list[tuple[Shard, ShardBatch]]:
    """Select what is to be sent from each shard, within the bounds of one batch; shards that are looked at join `held`."""
    parts: list[tuple[Shard, ShardBatch]] = []
    at_most = max(1, -(-len(shards) // AT_ONCE))
    rows, size = 0, 0
    for shard in shards:
        if len(held) >= at_most and rows >= shard_context.rows_max // _FULL:
            break
        if (shard.progress.keeps_failing() and held) or not shard.acquire_sweep_lock():
            continue
        held.append(shard)
        places = max(1, at_most - len(parts))
        rows_max, bytes_max = (shard_context.rows_max - rows) // places, (shard_context.bytes_now - size) // places
        select = partial(_select, shard, writer, shard_context, now_ms, max(1, rows_max), max(1, bytes_max))
        batch = shard.run_guarded(select)
        if batch is not None:
            parts.append((shard, batch))
            rows += len(batch.batch.rows) + len(batch.batch.superseded)
            size += batch.batch.size
        if shard.progress.keeps_failing() or rows >= shard_context.rows_max or size >= shard_context.bytes_now:
            break
    return parts


def _select(
    shard: Shard, writer: SweepProducer, shard_context: ShardContext, now_ms: int, rows_max: int, bytes_max: int
) -> ShardBatch | None:
    """Move one batch of entries, where some are to move, and say what is to be sent."""
    begun_s = clock.monotonic_s()
    try:
        return _move_or_select(shard, writer, shard_context, now_ms, rows_max, bytes_max)
    except TransactionFailed:
        shard_context.note_failure(begun_s)
        raise


def _move_or_select(
    shard: Shard, writer: SweepProducer, shard_context: ShardContext, now_ms: int, rows_max: int, bytes_max: int
) -> ShardBatch | None:
    if shard.moves.move_batch(writer, shard_context, now_ms):
        shard.progress.note_move()
        return None
    found = sweep.select(shard.table, shard.changelog, shard_context.admission, now_ms, rows_max, bytes_max, shard_context.codec)
    if found is None:
        shard.progress.swept(overlooked=shard.is_overlooked(shard_context.admission, now_ms))
        return None
    if found.unopened:
        shard.moves.quarantine_due_rows(writer, found.unopened, shard_context, now_ms)
    elif found.to_explode:
        # Before anything else: what is given back here is asked for again at the next turn.
        give_back(shard_context.admission, found.batch.rows)
        shard.moves.explode_blocks(writer, found.to_explode)
    elif found.refused:
        shard.moves.park_refused(writer, found.refused, shard_context, now_ms)
    else:
        return found
    shard.progress.note_move()
    return None


def _deliver_parts(
    parts: list[tuple[Shard, ShardBatch]], context: SweepContext, shard_context: ShardContext
) -> list[SweepResult]:
    if not parts:
        return []
    begun_s, size = clock.monotonic_s(), sum(batch.batch.size for _, batch in parts)
    try:
        committed = sweep.deliver([batch for _, batch in parts], context)
    except TransactionFailed as error:
        shard_context.note_failure(begun_s, size)
        for shard, _ in parts:
            shard.note_failure(error)
        return []
    shard_context.note_commit(begun_s, size)
    return [_settle_shard(shard, batch, context) for (shard, _), batch in zip(parts, committed, strict=True)]


def _settle_shard(shard: Shard, batch: ShardBatch, context: SweepContext) -> SweepResult:
    swept = shard.run_guarded(lambda: sweep.finish_sweep(batch, context))
    if swept is None:
        return NOTHING
    if swept.deferred or batch.batch.is_split:
        shard.moves.note_entries_moved()
    shard.run_guarded(lambda: shard.sent_names.note_sent(swept.named, shard.table))
    shard.disregarded.tell_overruled(swept.overruled)
    shard.progress.swept(overlooked=False)
    return swept


def _call(shard: Shard, writer: SweepProducer, shard_context: ShardContext, now_ms: int) -> None:
    """Write down what came of HTTP calls, and begin those that are due."""
    calls = shard_context.calls
    if calls is not None and shard.phase is Phase.READY:
        shard.run_guarded(lambda: _call_turn(calls, shard, writer, shard_context, now_ms))


def _call_turn(calls: WebhooksInFlight, shard: Shard, writer: SweepProducer, shard_context: ShardContext, now_ms: int) -> None:
    unopened = webhook_calls.advance_calls(
        calls, shard.table, writer, changelog=shard.changelog, admission=shard_context.admission, now_ms=now_ms,
        rows_max=shard_context.rows_max, codec=shard_context.codec,
    )  # fmt: skip
    if unopened:
        shard.moves.quarantine_due_rows(writer, unopened, shard_context, now_ms)
