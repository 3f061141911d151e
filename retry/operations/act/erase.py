"""Erasing all that has one record key, since a person asked for it: which letters that are, and where records of it rest.

What waits is redacted by the owners of its shards, what rests is never returned again: both are members of an action, so each is
done once beside all else that is asked of it. The action names its letters, and nowhere the record key.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from retry.delay_queue import action_records
from retry.delay_queue.action_records import Action
from retry.errors import ActionRefused
from retry.kafka import authorization, topics
from retry.kafka.authorization import Right
from retry.operations.act.request import Request, renew_action
from retry.operations.control_requests import ShardNumbers
from retry.operations.letters.found_letter import FoundLetter
from retry.record import PartitionId

_COMPACT = "compact"


class RestingRecords(NamedTuple):
    """Records with this key in one partition of a topic.

    Attributes:
      newest_ms: timestamp of the newest of them.
    """

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
        """Build the request that erases the letters with this record key.

        Raises:
          ActionRefused: the reason names the key, and the audit would keep it.
        """
        if self.is_key_in(reason):
            raise ActionRefused("the reason names the key, and the audit keeps it for a year; say it in other words")
        of = "one record key" + (f" of topic {self.topic}" if self.topic else "")
        return renew_action(Action(action_records.ERASE, by, 0, [], 0, policies=policies, reason=reason, filter=of))


def list_compacted(shards: ShardNumbers, erasing: Erasing) -> list[PartitionId]:
    """Partitions of compacted topics in which records with this key rest."""
    described = topics.describe(shards.admin, {topic for topic, _ in erasing.resting})
    return sorted(place for place in erasing.resting if _COMPACT in described[place[0]].config.get("cleanup.policy", ""))


def write_nulls(shards: ShardNumbers, erasing: Erasing, places: list[PartitionId]) -> None:
    """Have compaction remove what rests in some partitions: a null with the same key in each of them.

    Raises:
      RightMissing: this user may not write there.
      TransactionFailed: it is not known whether they are there; asking again does no harm.
    """
    rights = {Right(authorization.TOPIC, topic, authorization.WRITE) for topic, _ in places}
    if gone := authorization.missing(shards.admin, rights):
        raise authorization.lacking(*gone)
    with shards.writing() as writer:
        writer.begin()
        for topic, partition in places:
            writer.write(topic, partition, [{"key": erasing.key, "value": None}])
        writer.commit()
