"""One letter among records of other topics: its outcome, the record that it became, and what workers say of letters.

Each is looked for no longer than 10 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from retry import clock, format_versions
from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import Letter
from retry.delay_queue.envelopes import Entry
from retry.errors import OutcomeNewer
from retry.kafka import offset_ranges, topics
from retry.operations.cluster import Cluster
from retry.record import decode_text, read_headers
from retry.telemetry import outcomes, worker_records
from retry.telemetry.outcomes import Outcome
from retry.telemetry.worker_records import KEY, RefusedRecord, WorkerRecord

SEARCH_S = 10.0
# Clocks of whoever wrote the letter and of whoever took it in may differ.
SKEW_MS = 60_000
# In the place of what was decided, of a letter that was returned from where it rested, and nobody tells where to.
RETURNED = "returned"
# A worker that has missed so many of the records that it is to write says nothing of now.
_MISSED = 3
# One more than any offset has.
_DIGITS_MAX = 20
# In <due_at_ms>/<topic>/<partition>/<offset>.
_KEY_SLASHES = 3


class LetterLocation(NamedTuple):
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


def is_location(text: str) -> bool:
    """Whether a text names a place, and not a letter that waits, whose name begins with its due time."""
    return text.count("/") == 2


def parse_location(text: str) -> LetterLocation:
    """Parse `topic/partition/offset`; raises `ValueError` where a text is not of that form."""
    topic, *numbers = text.split("/")
    if not topic or len(numbers) != 2 or not all(number.isascii() and number.isdigit() for number in numbers):
        raise ValueError(f"{text!r} is not TOPIC/PARTITION/OFFSET, like orders.DLT/0/42")
    partition, offset = (int(number[:_DIGITS_MAX]) for number in numbers)
    if partition >= 1 << 31 or offset >= 1 << 63:
        raise ValueError(f"{text!r}: there is no such partition or offset")
    return LetterLocation(topic, partition, offset)


def parse_place(text: str) -> LetterLocation:
    """Parse where a letter failed, as `parse_location` or out of the name of a letter that waits; raises `ValueError`."""
    due, _, rest = text.partition("/")
    return parse_location(rest if text.count("/") == _KEY_SLASHES and due.isascii() and due.isdigit() else text)


class DecisionRecord(NamedTuple):
    """One decision on a letter, by an `action` or by a policy; fields as those of an outcome, None where no record tells them."""

    id: str
    team: str
    policy: str
    attempt: int
    first_failed_ms: int | None
    failed_ms: int | None
    taken_ms: int | None
    decision: str
    reason: str | None
    due_ms: int | None
    target: str
    action: str | None = None


class Delivery(NamedTuple):
    """The record that a letter became; `at_ms` is None where its topic does not keep the broker's time.

    Attributes:
      action: the action of operators that moved the letter last.
      attempt: how many retries the record's headers tell of.
      returned: whether an operator had it returned from there.
    """

    place: LetterLocation
    at_ms: int | None
    reason: str | None = None
    action: str | None = None
    attempt: int | None = None
    returned: bool = False


def find_outcome(cluster: Cluster, wanted: LetterLocation, letter: Letter | None) -> Outcome | None:
    """Find the outcome of a letter at intake within 10 s; raises as `read_outcome`."""
    since_ms = letter.timestamp_ms or 0 if letter else 0
    return next((told for told in _outcomes(cluster, wanted, since_ms) if told.get("action") is None), None)


def find_last_act(cluster: Cluster, wanted: LetterLocation, since_ms: int) -> Outcome | None:
    """Find the last outcome of operators' actions on a letter within 10 s; raises as `read_outcome`."""
    acted = (told for told in _outcomes(cluster, wanted, since_ms) if told.get("action") is not None)
    return max(acted, key=lambda told: told["taken_ms"], default=None)


def _outcomes(cluster: Cluster, wanted: LetterLocation, since_ms: int) -> Iterator[Outcome]:
    topic = cluster.names.outcomes
    wanted_spans = offset_ranges.find_spans_since(cluster.admin, topic, range(cluster.partitions(topic)), since_ms - SKEW_MS)
    for batch in offset_ranges.read_batches(cluster.reader, wanted_spans, clock.Deadline(SEARCH_S)):
        for message in batch:
            if (told := read_outcome(message.value() or b"", wanted)) is not None:
                yield told


def read_outcome(value: bytes, wanted: LetterLocation) -> Outcome | None:
    """Read the outcome of a letter in a record, if it is there; raises `OutcomeNewer` where a newer version wrote it."""
    # Most records are of other letters, and need not be taken apart.
    if wanted.topic.encode() not in value or b"%d" % wanted.offset not in value:
        return None
    try:
        letters = outcomes.read(value)
    except ValueError:
        return None
    told = next((letter for letter in letters if letter.get("source") == str(wanted)), None)
    if told is not None:
        format_versions.OUTCOME.refuse_newer(told.get("v"), OutcomeNewer)
    return told


def read_outcome_decision(told: Outcome) -> DecisionRecord:
    return DecisionRecord(*(told.get(field) for field in DecisionRecord._fields))  # type: ignore[arg-type]


def read_entry_decision(entry: Entry) -> DecisionRecord:
    """Return the decision that an entry carries out, as far as its headers tell it."""
    ours = {name: (value or b"").decode("utf-8", "replace") for name, value in entry.headers if name in names.OURS}
    reason = ours.get(names.PARKED_REASON)
    attempt, first_ms, due_ms = (_parse_digits(ours.get(name)) for name in (names.ATTEMPT, names.FIRST_FAILED_MS, names.DUE_MS))
    return DecisionRecord(
        ours.get(names.ID, ""), entry.team, ours.get(names.POLICY, ""), attempt=(attempt or 0) + (reason is not None),
        first_failed_ms=first_ms, failed_ms=None, taken_ms=None, decision="park" if reason else "retry", reason=reason,
        due_ms=None if reason else due_ms, target=entry.destination,
    )  # fmt: skip


def _parse_digits(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None


def find_sent_record(
    cluster: Cluster, wanted: LetterLocation, letter: Letter | None, decided: DecisionRecord,
    is_returned: Callable[[LetterLocation], bool],
) -> Delivery | None:
    """Find the record on the target topic that was made from the letter, in time; one that was returned comes last."""
    about = topics.describe(cluster.admin, [decided.target], optional=True).get(decided.target)
    if about is None:
        return None
    by_broker = about.config.get("message.timestamp.type") == "LogAppendTime"
    # Otherwise a record there has the letter's own timestamp.
    own_ms = letter.timestamp_ms if letter else 0
    since_ms = (decided.due_ms or decided.taken_ms or 0) if by_broker or own_ms is None else own_ms
    wanted_spans = offset_ranges.find_spans_since(cluster.admin, decided.target, range(about.partitions), since_ms - SKEW_MS)
    source, returned = str(wanted).encode(), None
    for batch in offset_ranges.read_batches(cluster.reader, wanted_spans, clock.Deadline(SEARCH_S)):
        for message in batch:
            ours = read_own_headers(message)
            if ours.get(names.SOURCE) != source or ours.get(names.ACTION_BEFORE) == names.SUPERSEDED:
                continue
            place = LetterLocation(decided.target, message.partition() or 0, message.offset() or 0)
            found = Delivery(
                place, message.timestamp()[1] if by_broker else None, decode_text(ours.get(names.PARKED_REASON)),
                decode_text(ours.get(names.ACTION)), _parse_digits(decode_text(ours.get(names.ATTEMPT))),
                is_returned(place),
            )  # fmt: skip
            if not found.returned:
                return found
            returned = found
    return returned


def read_own_headers(message: Any) -> Mapping[str, bytes | None]:
    """Read the headers of a record by name, the service's own among them; none where they cannot be read."""
    return dict(read_headers(message) or ())


def find_refused_letters(cluster: Cluster) -> dict[str, RefusedRecord]:
    """Find letters that running workers name as refused, by `topic/partition/offset`, as far as is found within 10 s."""
    topic = cluster.names.notes
    about = topics.describe(cluster.admin, [topic], optional=True).get(topic)
    if about is None:
        return {}
    spans = offset_ranges.find_readable_spans(cluster.admin, topic, range(about.partitions)).values()
    told: dict[bytes, WorkerRecord] = {}
    for batch in offset_ranges.read_batches(cluster.reader, list(spans), clock.Deadline(SEARCH_S)):
        for message in batch:
            key, value = message.key(), message.value()
            if key is not None and value is not None and key.startswith(KEY.encode()):
                told[key] = worker_records.read(value)
    return list_refused(told, clock.wall_ms())


def list_refused(told: Mapping[bytes, WorkerRecord], now_ms: int) -> dict[str, RefusedRecord]:
    """List the letters that workers name which have not ended and are not silent."""
    running = (each for each in told.values() if not each.ended and now_ms - each.at_ms < _MISSED * each.every_ms)
    return {refused.letter: refused for each in running for refused in each.refused}
