"""What becomes of one letter, and the entry that carries it out, in a form that its topic and the changelog take."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import msgspec

from backoff import RetryAt
from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import NO_TIME, Letter
from retry.dead_letters.failure import encode_failure
from retry.delay_queue import entry_keys
from retry.delay_queue.blocks import BYTES_MAX
from retry.delay_queue.envelope_codec import PLAIN, EnvelopeCodec
from retry.delay_queue.envelopes import HEADERS_MAX, Entry
from retry.intake.attempts.attempt_counter import LetterHistory
from retry.kafka.record_limits import fits_compressed
from retry.policies.route import RetryPlan, Route
from retry.policies.topic_names import ORIGIN
from retry.record import Headers

# What becomes of one letter: by which plan, whether it is retried, where to and when. Pure: no clock, no chance.

DRAWS = 1 << 32
# Reasons to park under `null_value: cancel`: the null, one without a key, and what it cancels.
NULL_VALUE, NO_KEY, CANCELLED = "null_value", "no_key", "cancelled"


class DecidedLetter(msgspec.Struct, frozen=True, gc=False):
    """A letter and what was decided.

    Attributes:
      attempt: number of the retry that the decision is about; 1 is the first.
      reason: why it parks; None where it is retried.
      target: the topic that it goes to; None for the service's own parking topic.
      due_at_ms: when the retry is due; the time of the decision where the letter parks.
    """

    letter: Letter
    trace: LetterHistory
    route: Route
    plan: RetryPlan
    attempt: int
    reason: str | None
    target: str | None
    due_at_ms: int
    failed_at_ms: int
    first_failed_at_ms: int
    decided_at_ms: int
    incarnation: int = 0

    @property
    def ordered(self) -> bool:
        """Whether it waits for earlier letters of its key; what parks waits for nobody."""
        return self.plan.ordered and self.reason is None and self.letter.key is not None

    @property
    def cancels(self) -> bool:
        """Whether it is a null that ends what waits under its record key."""
        return self.reason == NULL_VALUE


def decide(
    route: Route, letter: Letter, trace: LetterHistory, now_ms: int, unfit: str | None = None, failed_at_ms: int | None = None
) -> DecidedLetter:
    """Decide whether a letter is retried, where and when, or parked, and why; not retried where it is `unfit`.

    It failed at `failed_at_ms`, where that is known better than the letter says.
    """
    attempt = (trace.made or 0) + 1
    if failed_at_ms is None:
        failed_at_ms = letter.failed_at_ms(now_ms)
    first_ms = failed_at_ms if trace.first_failed_ms is None else min(trace.first_failed_ms, failed_at_ms)
    plan = route.plan(
        letter.failure, attempt=attempt, age_ms=max(0, now_ms - first_ms), headers=letter.original_headers,
        null_value=letter.value is None,
    )  # fmt: skip
    target = None if plan.park else plan.resolve_target(letter.failure, letter.topic)
    reason = unfit or _find_park_reason(letter, trace, route, plan, target)
    if reason is None:
        decision = plan.policy.decide(
            attempt=attempt, first_failed_at_ms=first_ms, failed_at_ms=failed_at_ms, now_ms=now_ms, draw=draw(letter.source),
            retry_at_ms=letter.retry_at_ms,
        )  # fmt: skip
        if isinstance(decision, RetryAt):
            due_ms = decision.due_at_ms
            return DecidedLetter(
                letter, trace, route, plan=plan, attempt=attempt, reason=None, target=target, due_at_ms=due_ms,
                failed_at_ms=failed_at_ms, first_failed_at_ms=first_ms, decided_at_ms=now_ms,
            )  # fmt: skip
        reason = decision.reason
    return DecidedLetter(
        letter, trace, route, plan=plan, attempt=attempt, reason=reason, target=plan.park_to, due_at_ms=now_ms,
        failed_at_ms=failed_at_ms, first_failed_at_ms=first_ms, decided_at_ms=now_ms,
    )  # fmt: skip


def draw(source: bytes) -> float:
    """Compute the number in [0, 1) that jitter depends on, from a letter's coordinates, so that it is always the same."""
    return zlib.crc32(source) / DRAWS


def _find_park_reason(letter: Letter, trace: LetterHistory, route: Route, plan: RetryPlan, target: str | None) -> str | None:
    """Why this letter must not be retried, whatever its number and age; None where it may."""
    if not letter.copyable():
        return "unreadable_headers"
    if plan.park:
        return "rule"
    if plan.null_cancels and letter.value is None:
        return NO_KEY if letter.key is None else NULL_VALUE
    if trace.made is None:
        return "bad_attempt"
    if letter.retry_at_ms == NO_TIME and plan.policy.honour_retry_at:
        return "bad_due"
    if plan.retry_to is None:
        return "no_policy"
    if target is None and (plan.retry_to != ORIGIN or letter.failure.origin_topic is None):
        return "no_origin" if plan.retry_to == ORIGIN else "no_target"
    if plan.template is not None and not route.completes(target):
        return "target_not_allowed"
    return None


_RECORD_BYTES = 1_048_588 - 256
_REFERENCE_KEY_BYTES_MAX = 1_024
# An envelope has three bytes at least for each header: one of this size has no more than may be written.
_FEW_HEADERS_BYTES = 3 * HEADERS_MAX


class BuiltEntry(msgspec.Struct, frozen=True, gc=False):
    key: bytes
    envelope: bytes
    entry: Entry
    reason: str | None

    @property
    def destination(self) -> str:
        return self.entry.destination


class EntryBuilder:
    """The builder of entries from decisions, in a form that the changelog and their target take.

    Args:
      parked: the topic of letters whose policy names no parking topic.
      bytes_max: by topic, the largest record that it takes; the changelog's is among them.
    """

    def __init__(self, changelog: str, parked: str, bytes_max: Mapping[str, int], codec: EnvelopeCodec = PLAIN) -> None:
        self._changelog, self.parked, self._bytes_max, self.codec = changelog, parked, bytes_max, codec
        of_changelog = bytes_max.get(changelog, _RECORD_BYTES)
        # Letters of other sizes may join a block: it has less than four times as much then.
        self.block_bytes, self._safe_bytes = min(BYTES_MAX, of_changelog // 4), min(_FEW_HEADERS_BYTES, of_changelog)

    def find_safe_bytes(self, target: str) -> int:
        """Return the size in bytes that changelog and target take with any headers; nearly every letter's entry is smaller."""
        return min(self._safe_bytes, self._bytes_max.get(target, _RECORD_BYTES))

    def find_bytes_max(self, target: str) -> int:
        """Return the largest size in bytes of an envelope that the changelog and its target take without compression."""
        return min(self._bytes_max.get(topic, _RECORD_BYTES) for topic in (self._changelog, target))

    def pack(self, decided: DecidedLetter) -> BuiltEntry:
        """Build the entry of a letter; a reference without payload where it cannot be copied, or fits nowhere even compressed."""
        letter = decided.letter
        if not letter.copyable():
            return self._reference(decided)
        ours, target = _make_our_headers(decided), decided.target or self.parked
        headers = letter.original_headers + ours
        entry = Entry(target, letter.key, letter.value, headers, letter.timestamp_ms, decided.route.team, decided.failed_at_ms)
        key = _build_entry_key(decided, target)
        envelope = self.codec.encode(key, entry)
        if len(envelope) <= self.find_safe_bytes(target) or self.is_taken_by_topics(envelope, entry, may_compress=False):
            return BuiltEntry(key, envelope, entry, decided.reason)
        essential = names.ESSENTIAL_WHERE_PARKED if decided.reason else names.ESSENTIAL
        headers = letter.original_headers + [header for header in ours if header[0] in essential]
        lean = msgspec.structs.replace(entry, headers=headers)
        for each, may_compress in ((lean, False), (entry, True), (lean, True)):
            envelope = self.codec.encode(key, each)
            if self.is_taken_by_topics(envelope, each, may_compress=may_compress):
                return BuiltEntry(key, envelope, each, decided.reason)
        if decided.reason is None:
            park_to, now_ms = decided.plan.park_to, decided.decided_at_ms
            decided = msgspec.structs.replace(decided, reason="too_large", target=park_to, due_at_ms=now_ms)
        return self._reference(decided)

    def _reference(self, decided: DecidedLetter) -> BuiltEntry:
        """The letter without payload, to be parked: its coordinates say where the whole of it lies, and it tells its failure."""
        letter, target = decided.letter, decided.target or self.parked
        key = letter.key if letter.key is not None and len(letter.key) <= _REFERENCE_KEY_BYTES_MAX else None
        headers, team = _make_our_headers(decided), decided.route.team
        reference = Entry(target, key, None, headers, letter.timestamp_ms, team, decided.failed_at_ms)
        entry_key, told = _build_entry_key(decided, target), encode_failure(letter.failure)
        if told is not None:
            telling = msgspec.structs.replace(reference, headers=[*headers, (names.PARKED_FAULT, told)])
            envelope = self.codec.encode(entry_key, telling)
            if self.is_taken_by_topics(envelope, telling, may_compress=False):
                return BuiltEntry(entry_key, envelope, telling, decided.reason)
        return BuiltEntry(entry_key, self.codec.encode(entry_key, reference), reference, decided.reason)

    def is_taken_by_topics(self, envelope: bytes, entry: Entry, *, may_compress: bool = True) -> bool:
        """Whether the changelog takes an entry as it is, and its topic takes it, compressed if need be.

        `may_compress` is False where it is not sent by a sweep, which compresses what its topic takes only so.
        """
        if len(envelope) > self._bytes_max.get(self._changelog, _RECORD_BYTES) or len(entry.headers) > HEADERS_MAX:
            return False
        topic_bytes_max = self._bytes_max.get(entry.destination, _RECORD_BYTES)
        return len(envelope) <= topic_bytes_max or (may_compress and fits_compressed(entry, topic_bytes_max))


def _make_our_headers(decided: DecidedLetter) -> Headers:
    letter = decided.letter
    attempt = b"%d" % (decided.attempt - 1 if decided.reason else decided.attempt)
    due, first_failed = b"%d" % decided.due_at_ms, b"%d" % decided.first_failed_at_ms
    ours = names.make_retry_headers(decided.trace.id, attempt, letter.source, due, decided.plan.name.encode(), first_failed)
    if decided.reason:
        ours.append((names.PARKED_REASON, decided.reason.encode()))
    return ours


def _build_entry_key(decided: DecidedLetter, target: str) -> bytes:
    letter, team = decided.letter, decided.route.team
    stem = entry_keys.build_key_stem(letter.topic, letter.partition)
    number = entry_keys.number_letter(letter.offset, decided.incarnation)
    if decided.cancels:
        return entry_keys.build_key(decided.due_at_ms, stem, number, entry_keys.NULLS)
    ordered = decided.ordered
    if ordered and letter.key is not None:
        stem = entry_keys.hash_record_key(team, letter.topic, letter.key) + stem
    return entry_keys.build_key(decided.due_at_ms, stem, number, entry_keys.lane(team, letter.topic, target, ordered))
