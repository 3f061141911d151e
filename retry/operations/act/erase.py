"""Erasing all that has one record key, since a person asked for it: which letters that are, and where records of it rest.

What waits is redacted by the owners of its shards, what rests is never returned again: both are members of an action, so each is
done once beside all else that is asked of it. The action names its letters, and nowhere the record key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from retry.delay_queue import action_records, action_state
from retry.delay_queue.action_records import SLICE, Action
from retry.delay_queue.envelope_codec import EnvelopeCodec, make_codec
from retry.delivery.act import ENDED_MS
from retry.errors import ActionRefused, EntryUnreadable, SealUnopened
from retry.kafka import authorization, topics
from retry.kafka.authorization import Right
from retry.kafka.topics import Described
from retry.operations.act.audit import Audit
from retry.operations.act.request import Request, renew_action
from retry.operations.control_requests import ShardNumbers
from retry.operations.found_letter import FoundLetter
from retry.record import PartitionId
from retry.settings import Settings


class RestingRecords(NamedTuple):
    """Records with this key in one partition of a topic, and the timestamp of the newest."""

    records: int
    newest_ms: int


class Erasing:
    """One record key, and what was found of it so far.

    Attributes:
      resting: by topic and partition, records with this key on parking topics and among the discarded.
      sealed: letters that wait and may have this key, since what they hold cannot be read here.
    """

    def __init__(self, key: bytes, topic: str | None = None) -> None:
        self.key, self.topic = key, topic
        self.resting: dict[PartitionId, RestingRecords] = {}
        self.sealed = 0

    def matches(self, letter: FoundLetter) -> bool:
        """Whether a letter is to be erased; records that rest are counted."""
        self.sealed += letter.sealed is not None and self.topic in (None, letter.topic)
        if letter.key != self.key or self.topic not in (None, letter.topic):
            return False
        if letter.entry is None:
            if letter.value is None and not letter.headers:
                # A null of ours, see `write_nulls`: every letter that rests has headers.
                return False
            place = letter.place[:2]
            before = self.resting.get(place, RestingRecords(0, 0))
            self.resting[place] = RestingRecords(before.records + 1, max(before.newest_ms, letter.timestamp_ms or 0))
        return True

    def is_key_in(self, text: str) -> bool:
        """Whether a text names the key, as a word of it."""
        try:
            word = self.key.decode()
        except UnicodeDecodeError:
            return False
        return bool(word) and re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None

    def request(self, by: str, reason: str, policies: str) -> Request:
        """Build the request; raises `ActionRefused` where the reason names the key, which the audit would keep."""
        if self.is_key_in(reason):
            raise ActionRefused("the reason names the key, and the audit keeps it for a year; say it in other words")
        of = "one record key" + (f" of topic {self.topic}" if self.topic else "")
        return renew_action(Action(action_records.ERASE, by, 0, [], 0, policies=policies, reason=reason, filter=of))


def list_compacted(shards: ShardNumbers, erasing: Erasing) -> list[PartitionId]:
    """List partitions of compacted topics in which records with this key rest."""
    described = topics.describe(shards.admin, {topic for topic, _ in erasing.resting})
    return sorted(place for place in erasing.resting if _is_compacted(described[place[0]]))


def write_nulls(shards: ShardNumbers, erasing: Erasing, places: list[PartitionId]) -> None:
    """Write a null with the erased key into each of some partitions, so that compaction removes what rests there.

    Raises:
      RightMissing: this user may not write there.
      TransactionFailed: it is not known whether they are there; asking again does no harm.
    """
    rights = {Right(authorization.TOPIC, topic, authorization.WRITE) for topic, _ in places}
    if gone := authorization.list_missing_rights(shards.admin, rights):
        raise authorization.build_right_missing(*gone)
    with shards.writing() as writer:
        writer.begin()
        for topic, partition in places:
            writer.write(topic, partition, [{"key": erasing.key, "value": None}])
        writer.commit()


# What is left of a record key that was erased, where, and until when Kafka or the service keeps it.

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


def find_remnants(settings: Settings, shards: ShardNumbers, erasing: Erasing, now_ms: int) -> list[Remnant]:
    """Find all that the brokers tell of; raises `TopicsInvalid` where a topic is missing, or cannot be read."""
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


def _is_compacted(about: Described) -> bool:
    return "compact" in about.config.get("cleanup.policy", "")


def _find_resting(erasing: Erasing, described: Mapping[str, Described]) -> Iterator[Remnant]:
    for (topic, partition), found in sorted(erasing.resting.items()):
        about, what = described[topic], f"{found.records:,} records"
        until_ms = _find_retention_end(about, found.newest_ms)
        if _is_compacted(about):
            what += ", which compaction removes behind a null of this key"
        elif until_ms is None:
            what += ", kept for ever: give the topic a retention.ms, or delete records up to there"
        yield Remnant(f"{topic}/{partition}", what, found.newest_ms, until_ms)


def _changelog(about: Described, name: str, now_ms: int) -> Remnant:
    lag_ms = int(about.config.get("max.compaction.lag.ms", _NEVER_MS))
    if lag_ms >= _NEVER_MS:
        return Remnant(name, "entries as they were, until it is compacted: give it a max.compaction.lag.ms", None, None)
    return Remnant(name, "entries as they were, until it is compacted", None, now_ms + lag_ms)


def _find_retention_end(about: Described, written_ms: int) -> int | None:
    """Find until when a topic keeps what was written then; None where it deletes nothing by time."""
    kept_ms = int(about.config.get("retention.ms", -1))
    return written_ms + kept_ms if kept_ms >= 0 and "delete" in about.config.get("cleanup.policy", "") else None


def _find_in_actions(shards: ShardNumbers, erasing: Erasing, codec: EnvelopeCodec) -> Iterator[Remnant]:
    """Actions that name the key in what was asked for, and edits of such letters that nobody has made yet."""
    named, edits = dict[str, int](), set[str]()
    for rows in shards.list_records(SLICE, _ACTIONS):
        for key, value in rows.items():
            members = action_records.decode_slice(value).members if key.startswith(SLICE) else []
            if any(_is_edit(erasing, member, codec) for member in members):
                edits.add(action_records.find_action_id(key).hex())
        for state in action_state.read_states(rows):
            if erasing.is_key_in(_describe_action(state.action)):
                named[state.id.hex()] = state.action.asked_at_ms
    for action in sorted(edits):
        yield Remnant(f"action {action}", f"an edit that is not made yet: retry actions cancel {action}", None, None)
    for action, asked_at_ms in sorted(named.items()):
        yield Remnant(f"action {action}", "its filter, patch or reason names the key", asked_at_ms, asked_at_ms + ENDED_MS)


def _is_edit(erasing: Erasing, member: action_records.Member, codec: EnvelopeCodec) -> bool:
    """Whether a member is an edit of a letter with this record key, or may be: what is sealed cannot be read here."""
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
