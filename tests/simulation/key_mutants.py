"""Rules of what is sealed, switched off one at a time; see `mutants`.

One more, a ramp that takes letters which are held for sent, is too rare in these runs:
`tests.unit.delivery.test_ramp_runner` has it.

| mutant | what it does |
| --- | --- |
| unopened-sent | what cannot be opened is sent as it is |
| sealed-unbound | what is sealed of one letter opens in the place of another |
| runs-in-clear | the next run of what recurs is not sealed |
| held-apart | what is held is deleted in the transaction after that in which it is put elsewhere |
| held-untold | actions and ramps go on before the fold has told of what was held, or let go |
| held-for-good | what is held is not looked at again |
| let-go-as-it-was | a name's message is let go under the key that it had before it was held |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.entry_keys import NAMED
from retry.delay_queue.envelope_codec import PLAIN, EnvelopeCodec
from retry.delay_queue.envelopes import Named
from retry.delivery import hold
from retry.delivery.hold import Holding
from retry.delivery.movers import MovedBatch
from retry.delivery.transaction_batch import TransactionBatch
from retry.errors import SealUnopened
from retry.worker.shards.requested_moves import RequestedMoves

Patches = list[Any]


def _unopened_sent() -> Patches:
    def sent_anyway(name: str) -> Any:
        original = getattr(EnvelopeCodec, name)

        def decode(codec: EnvelopeCodec, key: bytes, envelope: bytes) -> Any:
            try:
                return original(codec, key, envelope)
            except SealUnopened:
                of: Any = envelopes.decode_routing(envelope)
                return Named(of.destination, None, of.content, [], of.timestamp_ms, of.team, of.failed_at_ms)

        return patch.object(EnvelopeCodec, name, decode)

    return [sent_anyway("decode"), sent_anyway("decode_named")]


def _runs_in_clear() -> Patches:
    original = TransactionBatch.make_replacements

    def replacements(batch: TransactionBatch, now_ms: int, _codec: EnvelopeCodec, is_taken: Any) -> Any:
        return original(batch, now_ms, PLAIN, is_taken)

    return [patch.object(TransactionBatch, "make_replacements", replacements)]


def _held_apart() -> Patches:
    original = Holding._move_rows

    def move(holding: Holding, writer: Any, rows: Any) -> None:
        class Apart:
            """Deletes in a transaction of its own."""

            begin, commit = writer.begin, writer.commit

            @staticmethod
            def write(changelog: str, shard: int, written: list[dict[str, Any]]) -> None:
                writer.write(changelog, shard, [row for row in written if row["value"] is not None])
                writer.commit()
                writer.begin()
                writer.write(changelog, shard, [row for row in written if row["value"] is None])

        original(holding, Apart, rows)  # type: ignore[arg-type]

    return [patch.object(Holding, "_move_rows", move)]


def _let_go_as_it_was() -> Patches:
    original = hold._make_released_key

    def let_go(key: bytes, envelope: bytes) -> bytes:
        if key[0] != NAMED:
            return original(key, envelope)
        of = envelopes.decode_routing(envelope)
        return entry_keys.move_into_lane(
            key, entry_keys.build_named_lane(of.team, entry_keys.read_source(key).topic, of.destination)
        )

    return [patch.object(hold, "_make_released_key", let_go)]


KEY_MUTANTS: dict[str, Callable[[], Patches]] = {
    "unopened-sent": _unopened_sent,
    "sealed-unbound": lambda: [patch.object(entry_keys, "extract_identity", lambda _key: b"")],
    "runs-in-clear": _runs_in_clear,
    "held-apart": _held_apart,
    "held-untold": lambda: [patch.object(RequestedMoves, "_held_moved", RequestedMoves.note_entries_moved)],
    "held-for-good": lambda: [patch.object(Holding, "move_batch", lambda *_: MovedBatch())],
    "let-go-as-it-was": _let_go_as_it_was,
}
