"""Letters → 64-bit numbers, and records of what was decided of them. The same on every worker and in every version."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice, starmap
from struct import Struct
from typing import Any, NamedTuple

from xxhash import xxh3_64_intdigest

from retry import format_versions
from retry.dead_letters.failure import Failure
from retry.errors import LineageNewer, LineageUnreadable

# Letters → 64-bit numbers. The same on every worker and in every version: they are compared across both.
#
# A lineage is bound to where its letter was written. Its number is made of the consumer that failed, as far as that is known,
# and of the record that it failed on; and its sends are counted for one team alone, which its id names. So whoever may write to
# the dead-letter topics of one team cannot say anything of another team's letters.

_ID = re.compile(rb"[0-9a-f]{24}")
_NUMBER_DIGITS = 16
# Where a hash begins: so a null is not an empty one, and a key is not a value.
_KEY, _NO_KEY, _NO_VALUE = 0x6B65, 0x6E6F6B, 0x6E6F76


def hash_payload(key: bytes | None, value: bytes | None) -> int:
    """Hash key and value of a record, by which it is known when it comes back without its headers.

    >>> hash_payload(None, b"") == hash_payload(b"", None)
    False
    """
    seed = _NO_KEY if key is None else xxh3_64_intdigest(key, _KEY)
    return seed ^ _NO_VALUE if value is None else xxh3_64_intdigest(value, seed)


def hash_payloads(keys: Iterable[bytes | None], values: Iterable[bytes | None]) -> list[int]:
    return [
        xxh3_64_intdigest(value, xxh3_64_intdigest(key, _KEY))
        if key is not None and value is not None
        else hash_payload(key, value)
        for key, value in zip(keys, values, strict=True)
    ]


def make_fingerprint(topic: str, of_payload: int) -> int:
    """Make a letter's fingerprint from its topic and payload hash: in another dead-letter topic it is another letter."""
    return of_payload ^ _of_topic(topic)


def make_fingerprints(topic: str, of_payloads: Iterable[int]) -> list[int]:
    of_topic = _of_topic(topic)
    return [of_payload ^ of_topic for of_payload in of_payloads]


@lru_cache(10_000)
def _of_topic(topic: str) -> int:
    return xxh3_64_intdigest(topic.encode())


@lru_cache(10_000)
def hash_team(team: str) -> int:
    """Compute the number under which everything about the letters of a team is recorded."""
    return xxh3_64_intdigest(team.encode())


def shorten_team_number(team: str) -> int:
    """Return the upper 32 bits of `hash_team`: enough to tell a handful of teams apart."""
    return hash_team(team) >> 32


@lru_cache(10_000)
def _team_digits(team: str) -> bytes:
    return b"%08x" % shorten_team_number(team)


def describe_failing_consumer(team: str, group: str | None, dead_letters: str) -> str:
    """Build a text that two letters share where the same consumer failed: from `group`, of the letter or its policy, if any.

    Where nobody names one, all that is known is which topic the consumer writes its dead letters to.
    """
    return f"{team}\0group\0{group}" if group else f"{team}\0topic\0{dead_letters}"


def make_lineage(cluster_id: str, consumer: str, topic: str, partition: int, offset: int) -> int:
    """Compute the lineage of the record at some coordinates, for one failing consumer; see `describe_failing_consumer`."""
    return make_lineages(cluster_id, consumer, topic, partition)(offset)


def make_lineages(cluster_id: str, consumer: str, topic: str, partition: int) -> Callable[[int], int]:
    """Return a function from offset to lineage, for the records of one partition.

    >>> make_lineages("cluster", "billing", "orders", 3)(7) == make_lineage("cluster", "billing", "orders", 3, 7)
    True
    """
    before = f"{cluster_id}\0{consumer}\0{topic}\0{partition}\0".encode()
    return lambda offset: xxh3_64_intdigest(b"%b%d" % (before, offset))


def find_lineage(cluster_id: str, consumer: str, failure: Failure, of_letter: int) -> int:
    """Return the lineage of a letter without an id: of the record that failed, where the letter names it; else its fingerprint.

    Letters of equal key and value that say nothing are one lineage, but are counted apart, see `TeamLineages.is_out`.
    """
    topic, partition, offset = failure.origin_topic, failure.origin_partition, failure.origin_offset
    if topic is None or partition is None or offset is None:
        return of_letter
    return make_lineage(cluster_id, consumer, topic, partition, offset)


def format_retry_id(lineage_id: int, team: str) -> bytes:
    """Format a lineage as header `retry-id`: 16 hexadecimal digits of its number, and 8 of the team that it is counted for.

    >>> format_retry_id(0xDEAD, "payments")
    b'000000000000dead9dc28a75'
    """
    return b"%016x%b" % (lineage_id, _team_digits(team))


def format_retry_ids(lineage_ids: Iterable[int], team: str) -> list[bytes]:
    form = b"%016x" + _team_digits(team)
    return [form % lineage_id for lineage_id in lineage_ids]


def parse_retry_id(text: bytes) -> int:
    """Return the lineage that a `retry-id` names, whichever team counts it; the hash of what `format_retry_id` did not write.

    >>> parse_retry_id(b"000000000000dead9dc28a75") == 0xDEAD
    True
    """
    return int(text[:_NUMBER_DIGITS], 16) if _ID.fullmatch(text) else xxh3_64_intdigest(text)


def belongs_to(text: bytes, team: str) -> bool:
    """Whether a `retry-id` is one that the service gave to a letter of this team.

    >>> belongs_to(format_retry_id(0xDEAD, "payments"), "payments"), belongs_to(format_retry_id(0xDEAD, "billing"), "payments")
    (True, False)
    """
    return text.endswith(_team_digits(team)) and _ID.fullmatch(text) is not None


def parse_retry_ids(texts: Iterable[bytes], team: str) -> list[int | None]:
    """Return the lineages that many ids name; None in place of those that do not belong to the team."""
    fullmatch = _id_of(team).fullmatch
    return [int(text[:_NUMBER_DIGITS], 16) if fullmatch(text) else None for text in texts]


@lru_cache(10_000)
def _id_of(team: str) -> re.Pattern[bytes]:
    return re.compile(rb"[0-9a-f]{16}" + _team_digits(team))


# What one batch of intake decided of the letters of one team, as the value of one record: a version byte, 8 bytes that stand
# for the team, then 27 bytes a letter.
#
#     lineage u64 | fingerprint u64 | due second u32 | first failure's second u32 | attempt u16 | flags u8, little-endian
#
# All that is recorded of a team lies in one partition, so that every worker folds it in the order in which it was decided,
# whether it follows the topic or reads it anew.
#
# What was moved while it waited is told in a record of its own: a zero byte, the version, the team, and rows of the same form.

# lineage id, fingerprint, due second, first failure's second, attempt, flags
LineageFields = tuple[int, int, int, int, int, int]

MATCHED, MOVED = 1, 2
ATTEMPT_MAX = (1 << 16) - 1
_VERSION = format_versions.LINEAGE.writes.to_bytes(1, "big")
_MOVES = b"\0" + _VERSION
_TEAM, _ROW = Struct("<Q"), Struct("<QQIIHB")
# A record stays well below what every broker takes.
_ROWS_A_RECORD = 20_000
SECOND_MAX = (1 << 32) - 1


class LineageTopic(NamedTuple):
    name: str
    partitions: int

    def find_partition(self, team: str) -> int:
        return hash_team(team) % self.partitions

    def pack_by_partition(
        self, told: Iterable[tuple[str, LineageFields]], *, moves: bool = False
    ) -> dict[int, list[dict[str, Any]]]:
        """Pack rows about letters of some teams into records, and return the records by partition; see `pack_records`."""
        by_team: dict[str, list[LineageFields]] = {}
        for team, fields in told:
            by_team.setdefault(team, []).append(fields)
        found: dict[int, list[dict[str, Any]]] = {}
        for team, fields_of_team in by_team.items():
            found.setdefault(self.find_partition(team), []).extend(pack_records(team, fields_of_team, moves=moves))
        return found


class TeamRows(NamedTuple):
    """Rows of one record, in their order, how many they are, and the `hash_team` of whose letters they are about."""

    team: int
    row_count: int
    rows: Iterator[LineageFields]


def build_fields(
    lineage_id: int, fingerprint: int, due_ms: int, first_failed_ms: int, attempt: int, matched: bool = False
) -> LineageFields:
    """Build the packed row of one letter: times in seconds from 1 to the year 2106, rounded down, attempts below 65,536.

    Args:
      due_ms: when it will be sent; for a letter that is parked, now.
      attempt: the number of the send that was decided, 1 for the first; 0 where the letter is parked and nothing is sent.
      matched: the letter was known by its fingerprint alone, see `TeamLineages.find_returned`.
    """
    due_s, first_s = due_ms // 1_000, first_failed_ms // 1_000
    if not 0 < due_s <= SECOND_MAX:
        due_s = max(1, min(due_s, SECOND_MAX))
    if not 0 <= first_s <= SECOND_MAX:
        first_s = max(0, min(first_s, SECOND_MAX))
    return lineage_id, fingerprint, due_s, first_s, min(attempt, ATTEMPT_MAX), MATCHED if matched else 0


def make_move_row(lineage_id: int, fingerprint: int, due_ms: int | None, attempt: int) -> LineageFields:
    """Build the row of a send that was decided before and is due at `due_ms` now; None means that its letter is parked."""
    due_s = 0 if due_ms is None else max(1, min(due_ms // 1_000, SECOND_MAX))
    return lineage_id, fingerprint, due_s, 0, min(attempt, ATTEMPT_MAX), MOVED


def pack(team: str, rows: Iterable[LineageFields], *, moves: bool = False) -> bytes:
    """Encode rows of a team as the value of one record; `moves` as in `pack_records`."""
    return (_MOVES if moves else _VERSION) + _TEAM.pack(hash_team(team)) + b"".join(starmap(_ROW.pack, rows))


def pack_records(team: str, rows: Iterable[LineageFields], *, moves: bool = False) -> list[dict[str, Any]]:
    """Pack rows of a team into as few records as hold them; `moves`: all of them are of moved sends, else none is."""
    left = iter(rows)
    parts = iter(lambda: list(islice(left, _ROWS_A_RECORD)), [])
    return [{"key": None, "value": pack(team, part, moves=moves)} for part in parts]


def unpack(packed: bytes) -> TeamRows:
    """Unpack a record into its team and its rows; raises LineageNewer or LineageUnreadable before any row is read.

    LineageUnreadable says that the bytes are no such record, or are cut off.
    """
    if packed:
        format_versions.LINEAGE.refuse_newer(packed[0], LineageNewer)
    head = _MOVES if packed.startswith(_MOVES) else _VERSION
    begins_at = len(head) + _TEAM.size
    if not packed.startswith(head) or len(packed) < begins_at or (len(packed) - begins_at) % _ROW.size:
        raise LineageUnreadable(f"{len(packed)} bytes that begin with {packed[:8].hex()} are no rows of version {_VERSION[0]}")
    (team,) = _TEAM.unpack_from(packed, len(head))
    rows = memoryview(packed)[begins_at:]
    return TeamRows(team, len(rows) // _ROW.size, _ROW.iter_unpack(rows))
