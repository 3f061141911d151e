"""Actions on letters for tests: policies, entries as intake makes them, and actions as a shard has them."""

from __future__ import annotations

from typing import Any

import msgspec

from retry.dead_letters import retry_headers as names
from retry.delay_queue import action_records, entry_keys, envelopes
from retry.delay_queue.action_records import Action, Member, Patch, Tally
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.envelope_codec import PLAIN, EnvelopeCodec
from retry.delay_queue.envelopes import Entry
from retry.delivery.acted_entry import EntryActions
from retry.delivery.movers import MoveContext, find_no_records, name_no_group
from retry.delivery.redecide import Redecider
from retry.intake.attempts import LineageTopic, format_retry_id
from retry.intake.build_entry import EntryBuilder
from tests.support.plans import registry_of

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
DISCARDED = "app-discarded"
LINEAGES = LineageTopic("lineage", 2)
# Of the letter below.
ID = format_retry_id(7, "orders")
ACTION = b"\x0a" * action_records.ACTION_BYTES
POLICIES = """
defaults: {backoff: {kind: constant, delay: 1h, max_delay: 1d}, jitter: none, max_attempts: 3}
teams:
  orders:
    topics:
      - {dead_letters: orders.DLT, retry_to: orders.retry, park_to: orders.parked,
         allowed_targets: [orders.retry, orders.slow, orders.parked]}
      - {dead_letters: keyed.DLT, retry_to: keyed.retry, park_to: orders.parked, ordered: true}
"""


def entry_actions(bytes_max: int = 1_000_000, codec: EnvelopeCodec = PLAIN) -> EntryActions:
    """Actions under the policies above, with records of at most so many bytes."""
    entry_builder = EntryBuilder("changelog", "parked", {"changelog": bytes_max, DISCARDED: bytes_max}, codec)
    return EntryActions(Redecider(registry_of(POLICIES), entry_builder, LINEAGES), DISCARDED)


def letter(
    topic: str = "orders.DLT", offset: int = 7, due_at_ms: int = NOW_MS + HOUR_MS, key: bytes | None = b"k",
    value: bytes | None = b'{"a":1}',
) -> tuple[bytes, Entry]:
    """The key and the entry of a letter that waits for its first retry."""
    ours = names.make_retry_headers(
        ID, b"1", f"{topic}/0/{offset}".encode(), b"%d" % due_at_ms, b"orders/p", b"%d" % NOW_MS
    )
    target, ordered = topic.replace("DLT", "retry"), topic == "keyed.DLT"
    stem = entry_keys.build_key_stem(topic, 0)
    if ordered:
        stem = entry_keys.hash_record_key("orders", topic, key or b"") + stem
    lane = entry_keys.lane("orders", topic, target, ordered)
    entry = Entry(target, key, value, [("trace", b"1"), ("none", None), *ours], NOW_MS - 9, "orders", NOW_MS)
    return entry_keys.build_key(due_at_ms, stem, offset, lane), entry


def state(kind: str, action: bytes = ACTION, slices: int = 1, **more: object) -> ActionState:
    """An action that is asked for and neither held nor cancelled."""
    head = msgspec.structs.replace(Action(kind, "anna", NOW_MS, [slices], 1), **more)
    return ActionState(action, head, None, None, Tally())


def member(key: bytes, due_at_ms: int = NOW_MS) -> Member:
    """A letter of an action."""
    return Member(key, due_at_ms)


def pack_entry(entry: Entry) -> bytes:
    """The envelope of an entry."""
    return envelopes.encode(entry)


def move_context(writer: Any, redecider: Redecider, now_ms: int = NOW_MS, **more: Any) -> MoveContext:
    """Make what a mover is given for one batch: without `more`, nothing rests, and no consumer group is named."""
    usual: dict[str, Any] = {
        "admission": None, "rows_max": 100, "bytes_max": 1 << 20, "end": lambda: 0, "discarded": DISCARDED, "audit": "audit",
        "outcomes": "outcomes", "ask_parked": find_no_records, "ask_passed": name_no_group, "shards": 0,
    }  # fmt: skip
    return MoveContext(writer=writer, redecider=redecider, now_ms=now_ms, **usual | more)


HEADER_PATCH = Patch({"trace": None, "who": "anna"})
