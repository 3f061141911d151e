"""A letter as it is read → what it has in common with others, its cell, and what is its own."""

from __future__ import annotations

import re
from binascii import b2a_base64
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from xxhash import xxh3_64_digest, xxh3_128_digest

from retry.console.folding.sql import casefold_message, encode_headers
from retry.dead_letters import retry_headers as names
from retry.dead_letters.frameworks import KNOWN
from retry.dead_letters.retry_headers import find_stack_header
from retry.delay_queue import entry_keys
from retry.delay_queue.envelopes import Named
from retry.delay_queue.table import named_entries
from retry.operations.found_letter import FoundLetter
from retry.operations.letter_filter.predicate import LetterFacts
from retry.policies.tasks import TEAM as TASKS
from retry.record import Headers, decode_text
from retry.scheduling.messages.entry_source import TEAM as SCHEDULES
from retry.telemetry import fingerprint

WAITING, PARKED, DISCARDED = "waiting", "parked", "discarded"
# What stands in the changelog and does not wait: superseded by another of its name, a cancel, or of no delivery.
SUPERSEDED, HIDDEN = "superseded", "hidden"
# Behind everything that waits come the letters that rest, the newest first.
RESTING_SORT = 1 << 61
_SORT_MAX = 1 << 60
RESTING_SORT_MIN = RESTING_SORT - _SORT_MAX
_INTEGER_MAX = (1 << 63) - 1
_HEADER_CHARS_MAX, _HEADERS_MAX = 512, 100
_STEP = re.compile(r"[0-9]{1,4}", re.ASCII)
_FRAMES = 3
_FRAME = re.compile(rb"^\s*at ([^(\n]{1,300})", re.MULTILINE)
_CAUSED_BY, _TRACE_BYTES_MAX, _CALLS_BYTES_MAX = b"Caused by: ", 64 << 10, 4_096


class Cell(NamedTuple):
    """The values that many letters share, as one row of the table `cells` has them; see its columns."""

    state: str
    kind: str
    team: str | None
    topic: str | None
    target: str
    attempt: int | None = None
    exception: str | None = None
    thrown: str | None = None
    cause: str | None = None
    common: str | None = None
    fingerprint: str | None = None
    consumer_group: str | None = None
    frames: str | None = None
    policy: str | None = None
    reason: str | None = None
    version: str | None = None

    def compute_digest(self) -> bytes:
        """Compute the digest of a cell: 16 bytes that no other cell has."""
        return xxh3_128_digest(repr(tuple(self)).encode("utf-8", "surrogatepass"))


class FoundFailure:
    """A letter as groups ask for it, an `Alike`."""

    def __init__(self, found: LetterFacts) -> None:
        self._found = found
        self.fingerprint, self.topic, self.attempt = found.fingerprint, found.topic, found.attempt

    @property
    def consumer_group(self) -> str | None:
        return _replace_surrogates(self._found.failure.consumer_group)

    @property
    def frames(self) -> str | None:
        return find_top_frames(self._found.headers)


class LogPlace(NamedTuple):
    """The place of a letter's record: the number of its topic in the replica, partition and offset."""

    topic: int
    partition: int
    offset: int


class LetterRecord(NamedTuple):
    """A row of `letters` with its cell; `entry_key` is None where the row does not tell all that an action asks of the letter."""

    place: str
    cell: Cell
    sort: int
    log: int
    log_partition: int
    log_offset: int
    partition: int | None
    offset: int | None
    due_ms: int | None
    failed_ms: int | None
    first_failed_ms: int | None
    key: str | None
    key_bytes: bytes | None
    message: str | None
    folded: str | None
    lineage: str | None
    size: int
    action: str | None
    step: int | None
    label: str | None
    headers: str | None
    ordered: str | None
    named: str | None
    version: str | None
    entry_key: bytes | None


def build_waiting_place(shard: int, key: bytes, block: bytes = b"") -> str:
    """Return the `place` of a letter that waits: shard, due time and a hash of its changelog key, in base64.

    In a `block` the key of that counts: when others leave the block, it ends, and this letter gets another place.
    """
    due = key[entry_keys.LANE_BYTES : entry_keys.LANE_BYTES + 8]
    return b2a_base64(b"%b%b%b" % (shard.to_bytes(2, "big"), due, xxh3_64_digest(key + block)), newline=False).decode()


def build_resting_place(log: LogPlace) -> str:
    """Return the `place` of a letter that rests: topic number, partition and offset of its record, as text."""
    # No waiting one begins so.
    return f"={log.topic}/{log.partition}/{log.offset}"


def build_waiting_row(found: FoundLetter, key: bytes, place: str, log: LogPlace) -> LetterRecord:
    """Build the table row of an entry (a waiting letter); one with a name is superseded until it is known to count."""
    entry, kind, label = found.entry, "letter", None
    state, named, version = WAITING, None, None
    if key[0] == entry_keys.NAMED:
        named = entry_keys.name_of(key)
        version = named_entries.build_superseded_key(key)
        state = HIDDEN if key.startswith(entry_keys.CANCEL) else SUPERSEDED
        kind, label = _kind(entry) if isinstance(entry, Named) else ("letter", None)
    elif entry_keys.lane_of(key) in entry_keys.UNDELIVERED:
        state = HIDDEN if entry_keys.lane_of(key) == entry_keys.NULLS else WAITING
    ordered = key[entry_keys.LANE_BYTES + 8 :] if key[0] == entry_keys.ORDERED else None
    sort = max(-_SORT_MAX, min(_SORT_MAX - 1, found.due_ms or 0))
    of_order, of_name, of_version = (None if each is None else each.hex() for each in (ordered, named, version))
    # What is sealed and was not opened shows no more than its route, and many headers may be more than topics take.
    is_told = found.sealed is None and len(found.headers) <= _HEADERS_MAX
    return _record(
        found, place, state, kind, sort, log, label, ordered=of_order, named=of_name, version=of_version,
        entry_key=key if is_told else None,
    )  # fmt: skip


def build_resting_row(found: FoundLetter, log: LogPlace) -> LetterRecord:
    """Build the table row of a letter that rests, which means it is parked or discarded."""
    sort = RESTING_SORT - max(0, min(_SORT_MAX, found.failed_ms or 0))
    kind = "task" if any(name == names.TASK_SOURCE for name, _ in found.headers) else "letter"
    return _record(found, build_resting_place(log), found.state, kind, sort, log, None)


def _record(
    found: FoundLetter, place: str, state: str, kind: str, sort: int, log: LogPlace, label: str | None,
    ordered: str | None = None, named: str | None = None, version: str | None = None, entry_key: bytes | None = None,
) -> LetterRecord:
    failure, message = found.failure, _replace_surrogates(found.failure.message)
    root, said = map(_replace_surrogates, failure.root)
    cell = Cell(
        state, kind, team=_replace_surrogates(found.team), topic=found.topic,
        target=_replace_surrogates(found.target) or "", attempt=found.attempt,
        exception=_replace_surrogates(failure.exception), thrown=_replace_surrogates(failure.thrown),
        cause=_replace_surrogates(failure.cause),
        common=None if said is None else fingerprint.in_common(root, said).message, fingerprint=found.fingerprint,
        consumer_group=_replace_surrogates(failure.consumer_group), frames=find_top_frames(found.headers),
        policy=_replace_surrogates(found.policy), reason=_replace_surrogates(found.reason),
        version=_replace_surrogates(found.version),
    )  # fmt: skip
    key, key_bytes = _decode_record_key(found.key)
    action, _, step = (found.ours.get(names.ACTION) or b"").decode("ascii", "replace").partition("/")
    partition, offset = (None, None) if found.source is None else (found.source.partition, found.source.offset)
    return LetterRecord(
        place, cell, sort=sort, log=log.topic, log_partition=log.partition, log_offset=log.offset, partition=partition,
        offset=offset, due_ms=found.due_ms, failed_ms=_integer(found.failed_ms), first_failed_ms=found.first_failed_ms, key=key,
        key_bytes=key_bytes, message=message, folded=_casefold_message(message), lineage=_replace_surrogates(found.lineage),
        size=found.size_bytes,
        action=action or None, step=int(step) if _STEP.fullmatch(step) else None, label=_replace_surrogates(label),
        headers=_kept_headers(found.headers), ordered=ordered, named=named, version=version,
        entry_key=entry_key,
    )  # fmt: skip


def _kind(entry: Named) -> tuple[str, str | None]:
    """Return the kind of a named entry (`timer`, `schedule`, `task` or `letter`), and what it is called outside the service."""
    if entry.call is not None:
        return "timer", entry.call.id
    if entry.team == SCHEDULES:
        # Its tombstone names the key that it was scheduled under.
        return "schedule", decode_text(entry.also[-1].key if entry.also else entry.key)
    return ("task" if entry.team == TASKS else "letter"), decode_text(entry.key)


def is_kept(header: str) -> bool:
    """Whether headers of this name are in the replica: those of applications are."""
    return header not in names.OURS and header not in KNOWN


def long_headers(headers: Headers) -> list[str]:
    kept = [(name, value) for name, value in headers if is_kept(name)]
    return [name for n, (name, value) in enumerate(kept) if len(value or b"") > _HEADER_CHARS_MAX or n >= _HEADERS_MAX]


def _kept_headers(headers: Headers) -> str | None:
    kept = [(name, decode_text(value)) for name, value in headers if is_kept(name) and len(value or b"") <= _HEADER_CHARS_MAX]
    return encode_headers(kept[:_HEADERS_MAX]) if kept else None


def _casefold_message(message: str | None) -> str | None:
    """A message without capitals, where SQLite does not find that by itself."""
    return None if message is None or (message.isascii() and "\0" not in message) else casefold_message(message)


def find_top_frames(headers: Headers) -> str | None:
    """Find the top frames of the root cause in a stack trace header; None where there are none.

    The lines of code are left out: they change with each release.
    """
    if (found := find_stack_header(headers)) is None:
        return None
    trace = found[1][-_TRACE_BYTES_MAX:]
    # What the exception says differs from letter to letter, and where it was thrown seldom.
    begin = max(0, trace.rfind(_CAUSED_BY))
    said = trace.find(b"\n", begin)
    calls = trace[begin:] if said < 0 or _FRAME.match(trace, begin, said) else trace[said:]
    return _first_calls(calls) if len(calls) > _CALLS_BYTES_MAX else _first_calls_again(calls)


def _first_calls(calls: bytes) -> str | None:
    found = [match[1].strip().decode("utf-8", "replace") for match in islice(_FRAME.finditer(calls), _FRAMES)]
    return "\n".join(found) or None


_first_calls_again = lru_cache(1_000)(_first_calls)


def _decode_record_key(key: bytes | None) -> tuple[str | None, bytes | None]:
    """A key as text, and as it is where that is not the same."""
    if key is None:
        return None, None
    text = key.decode(errors="replace")
    return text, None if text.encode() == key else key


def _replace_surrogates(text: str | None) -> str | None:
    if text is None or text.isascii():
        return text
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def _integer(number: int | None) -> int | None:
    return None if number is None else max(-_INTEGER_MAX, min(_INTEGER_MAX, number))
