"""What is left of a record key that was erased, where, and until when Kafka or the service keeps it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from retry.delay_queue import action_records, action_state
from retry.delay_queue.action_records import SLICE, Action
from retry.delay_queue.envelope_codec import EnvelopeCodec, make_codec
from retry.delivery.act import ENDED_MS
from retry.errors import EntryUnreadable, SealUnopened
from retry.kafka import topics
from retry.kafka.topics import Described
from retry.operations.act.audit import Audit
from retry.operations.act.erase import Erasing
from retry.operations.control_requests import ShardNumbers
from retry.settings import Settings

_ACTIONS = b"\x10action/"
# Where brokers say so for "never", they say it with the greatest number that there is.
_NEVER_MS = 1 << 60


class Remnant(NamedTuple):
    """Something that names the key, or that was made of it.

    Attributes:
      where: a topic, a partition of it, or an action.
      what: what lies there, and where nothing ends it what does.
      newest_ms: when the newest of it was written, as far as that is known.
      until_ms: when it may be removed, and is soon; None where that is not known, or nothing removes it.
    """

    where: str
    what: str
    newest_ms: int | None
    until_ms: int | None


def remnants(settings: Settings, shards: ShardNumbers, erasing: Erasing, now_ms: int) -> list[Remnant]:
    """All that the brokers tell of.

    Raises:
      TopicsInvalid: a topic is missing, or cannot be read.
    """
    own = topics.build_topic_names(settings.app_id)
    described = topics.describe(shards.admin, {own.changelog, own.lineage, own.audit, *(topic for topic, _ in erasing.resting)})
    topics.demand_configs(described)
    return [
        *_find_resting(erasing, described),
        _changelog(described[own.changelog], own.changelog, now_ms),
        Remnant(own.lineage, "hashes of topic, key and value", None, _find_retention_end(described[own.lineage], now_ms)),
        *_find_in_actions(shards, erasing, make_codec(settings)),
        *_find_in_audit(Audit(settings, shards.admin), described[own.audit], erasing),
    ]


def _find_resting(erasing: Erasing, described: Mapping[str, Described]) -> Iterator[Remnant]:
    for (topic, partition), found in sorted(erasing.resting.items()):
        about, what = described[topic], f"{found.records:,} records"
        until_ms = _find_retention_end(about, found.newest_ms)
        if "compact" in about.config.get("cleanup.policy", ""):
            what += ", which compaction removes behind a null of this key"
        elif until_ms is None:
            what += ", kept for ever: give the topic a retention.ms, or delete records up to there"
        yield Remnant(f"{topic}/{partition}", what, found.newest_ms, until_ms)


def _changelog(about: Described, name: str, now_ms: int) -> Remnant:
    """Describe the entries before their nulls, which the changelog keeps until it is compacted."""
    lag_ms = int(about.config.get("max.compaction.lag.ms", _NEVER_MS))
    if lag_ms >= _NEVER_MS:
        return Remnant(name, "entries as they were, until it is compacted: give it a max.compaction.lag.ms", None, None)
    return Remnant(name, "entries as they were, until it is compacted", None, now_ms + lag_ms)


def _find_retention_end(about: Described, written_ms: int) -> int | None:
    """Until when a topic keeps what was written then; None where it deletes nothing by time."""
    kept_ms = int(about.config.get("retention.ms", -1))
    return written_ms + kept_ms if kept_ms >= 0 and "delete" in about.config.get("cleanup.policy", "") else None


def _find_in_actions(shards: ShardNumbers, erasing: Erasing, codec: EnvelopeCodec) -> Iterator[Remnant]:
    """Actions that name the key in what was asked for, and edits of such letters that nobody has made yet."""
    named, edits = dict[str, int](), set[str]()
    for rows in shards.list_records(SLICE, _ACTIONS):
        for key, value in rows.items():
            members = action_records.decode_slice(value).members if key.startswith(SLICE) else []
            if any(_is_edit(erasing, member, codec) for member in members):
                edits.add(action_records.action_of(key).hex())
        for state in action_state.read_states(rows):
            if erasing.is_key_in(_describe_action(state.action)):
                named[state.id.hex()] = state.action.asked_at_ms
    for action in sorted(edits):
        yield Remnant(f"action {action}", f"an edit that is not made yet: retry actions cancel {action}", None, None)
    for action, asked_at_ms in sorted(named.items()):
        yield Remnant(f"action {action}", "its filter, patch or reason names the key", asked_at_ms, asked_at_ms + ENDED_MS)


def _is_edit(erasing: Erasing, member: action_records.Member, codec: EnvelopeCodec) -> bool:
    """Whether it is one of a letter with this key, or may be: where that is sealed, and its key is not given."""
    if not member.envelope:
        return False
    try:
        return codec.decode(member.key, member.envelope).key == erasing.key
    except SealUnopened:
        return True
    except EntryUnreadable:
        # An operator's mistake, which workers refuse; who knows what it holds.
        return erasing.key in member.envelope


def _describe_action(action: Action) -> str:
    patch = action.patch
    patched = [] if patch is None else [patch.value, *(text or "" for text in patch.headers.values())]
    return "\n".join((action.filter, action.reason, *patched))


def _find_in_audit(audit: Audit, about: Described, erasing: Erasing) -> Iterator[Remnant]:
    found = [record.at_ms for record in audit.read_records(0) if erasing.is_key_in(record.reason)]
    if found:
        topic = topics.build_topic_names(audit.settings.app_id).audit
        what, newest_ms = f"{len(found):,} records whose reason names the key", max(found)
        yield Remnant(topic, what, newest_ms, _find_retention_end(about, newest_ms))
