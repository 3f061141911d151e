"""Writes letters of one template together, column by column: a call for each letter and step would take a third longer.

What is written is what `read`, `AttemptCounter`, `decide` and `EntryBuilder` would write, byte for byte. Nothing is written while
some of the letters are found that these would treat otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import compress, repeat
from typing import Any, NamedTuple, cast
from zlib import crc32

from retry.dead_letters.dead_letter import LIKELY_MS, parse_lineage_id, parse_moments
from retry.dead_letters.frameworks import Values, find_content, find_envelopes
from retry.dead_letters.retry_headers import make_retry_headers
from retry.delay_queue.entry_keys import number_letter
from retry.intake.attempts import SECOND_MAX
from retry.intake.attempts.attempt_counter import AttemptCounter, LetterHistories
from retry.intake.batch import BatchResult
from retry.intake.build_entry import DRAWS, EntryBuilder
from retry.intake.gather_blocks import BlockFields, BlockLetter, EnvelopeLetter, fields_of
from retry.intake.letter_template import LetterTemplate
from retry.record import Headers
from retry.telemetry.outcomes import SharedFields
from retry.telemetry.recovery_ratio import MINUTE_MS, Retry, attempt_label

_CREATE, _STAMPED = 1, (1, 2)
_OF_RETRY = make_retry_headers(b"", b"", b"", b"", b"", b"")
# Names and values of the headers of a retry, and numbers.
_OURS_BYTES, _HEADER_BYTES, _CHARACTER_BYTES = 1_000, 16, 4

# Place in the batch, message, headers, values of headers, and the message of the failure, as far as that is known.
Candidate = tuple[int, Any, Headers, Values, bytes | None]
Share = Callable[[LetterTemplate, bytes | None], SharedFields]
# Of a team and a target.
FindSpread = Callable[[str, str], int | None]


class NeedsSlowPath(Exception):
    """Some letters need a closer look; by their positions."""

    def __init__(self, positions: Iterable[int]) -> None:
        super().__init__()
        self.positions = frozenset(positions)


class AlikeLetters(NamedTuple):
    """Letters of one template, and what each of them has of its own."""

    template: LetterTemplate
    messages: Sequence[Any]
    headers: Sequence[Headers]
    header_values: Sequence[Values]
    failure_messages: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    # Kind and milliseconds, as the client tells them.
    stamps: Sequence[tuple[int, int]]

    def moments(self, place: int) -> list[int | None]:
        return parse_moments([values[place] for values in self.header_values])


class _Times(NamedTuple):
    failed: Sequence[int]
    first: Sequence[int]
    sent: Sequence[int]


def take_alike_letters(template: LetterTemplate, candidates: Sequence[Candidate]) -> AlikeLetters:
    _, messages, headers, header_values, failure_messages = zip(*candidates, strict=True)
    keys, values = [message.key() for message in messages], [message.value() for message in messages]
    stamps = [message.timestamp() for message in messages]
    return AlikeLetters(
        template, messages, headers, header_values=header_values, failure_messages=failure_messages,
        keys=keys, values=values, stamps=stamps,
    )  # fmt: skip


class AlikeLettersWriter:
    """The writer of letters of one template, which adds their rows and counts to a `BatchResult`.

    Args:
      find_spread: finds over how many shards letters for a target are to be spread; None where they may wait in any.
    """

    def __init__(
        self, attempt_counter: AttemptCounter, share: Share, entry_builder: EntryBuilder, find_spread: FindSpread
    ) -> None:
        self._attempt_counter, self._share = attempt_counter, share
        self._entry_builder, self._codec, self._find_spread = entry_builder, entry_builder.codec, find_spread

    def write(self, letters: AlikeLetters, now_ms: int, result: BatchResult) -> None:
        """Add what is to be written for these letters; raises NeedsSlowPath, and adds nothing, where some need a closer look."""
        template = letters.template
        histories, times = self._histories(letters), _times(letters, now_ms)
        offsets = [message.offset() for message in letters.messages]
        place = template.source
        sources = [b"%b%d" % (place, offset) for offset in offsets]
        draws = list(map(crc32, sources))
        due, due_s, first_s = _compute_due_times(letters, times, draws, now_ms)
        numbers = offsets
        if result.incarnations:
            first = letters.messages[0]
            incarnation = result.incarnations.get((first.topic(), first.partition()), 0)
            numbers = [number_letter(offset, incarnation) for offset in offsets]
        shared = _shared_fields(letters)
        stamps = [ms if ms > 0 and kind in _STAMPED else None for kind, ms in letters.stamps]
        kept, values = template.layout.kept, letters.header_values
        # In the order of the attributes.
        columns: tuple[Iterable[Any], ...] = (
            numbers, due, histories.ids, letters.keys, letters.values, stamps, times.failed, times.first,
            values if all(kept) else [tuple(compress(each, kept)) for each in values],
        )  # fmt: skip
        own = list(map(BlockLetter, *columns))
        self._assign_shards(letters, shared, own, draws, result)
        self._note_outcomes(letters, zip(histories.ids, offsets, times.first, times.failed, due, strict=True), result)
        attempt = template.attempt
        result.traces[template.team].extend(zip(histories.numbers, histories.prints, due_s, first_s, repeat(attempt), repeat(0)))
        _count(template, times.sent, result)

    def _assign_shards(
        self, letters: AlikeLetters, shared: BlockFields, own: Sequence[BlockLetter], draws: Sequence[int],
        result: BatchResult,
    ) -> None:  # fmt: skip
        """Put the entries under the shards where they may wait, or into blocks where any shard will do; raises NeedsSlowPath."""
        template = letters.template
        shards = self._find_spread(template.team, template.target)
        bytes_each, bytes_max = _find_largest(letters), self._entry_builder.find_safe_bytes(template.target)
        together = self._entry_builder.block_bytes // bytes_each if shards is None and bytes_each <= bytes_max else 0
        if together > 1 and self._codec.is_plain:
            result.add_in_blocks(shared, own, together)
            return
        keys = template.entry_keys([each.due_at_ms for each in own], [each.number for each in own])
        envelopes = self._codec.encode_all(keys, [fields_of(shared, each) for each in own])
        if max(map(len, envelopes)) > bytes_max:
            raise NeedsSlowPath(n for n, each in enumerate(envelopes) if len(each) > bytes_max)
        if together > 1:
            whole = [EnvelopeLetter(each.number, each.due_at_ms, envelope) for each, envelope in zip(own, envelopes, strict=True)]
            result.add_in_blocks(shared, whole, self._entry_builder.block_bytes // max(map(len, envelopes)))
            return
        rows = [{"key": key, "value": envelope} for key, envelope in zip(keys, envelopes, strict=True)]
        if shards is None:
            result.anywhere += rows
            return
        for key, draw, row in zip(letters.keys, draws, rows, strict=True):
            result.entries[(draw if key is None else crc32(key)) % shards].append(row)

    def _histories(self, letters: AlikeLetters) -> LetterHistories:
        """Find id, number and fingerprint of each letter; raises `NeedsSlowPath` with those that need a closer look."""
        template, keys, values = letters.template, letters.keys, letters.values
        layout = template.layout
        if layout.may_be_envelope() and (unfit := find_envelopes(values)):
            raise NeedsSlowPath(unfit)
        if template.points and (unfit := [n for n, (k, v) in enumerate(zip(keys, values, strict=True)) if k is v is None]):
            raise NeedsSlowPath(unfit)
        if layout.returned is not None:
            place = layout.returned.id
            ids = [parse_lineage_id(each[place]) for each in letters.header_values]
            made = template.attempt - 1
            found = self._attempt_counter.again(template.team, template.topic, keys, values, _all_there(ids), made=made)
        else:
            found = self._attempt_counter.trace_first_letters(
                template.team, template.topic, keys, values, lineages=_lineages(letters), is_retry=template.is_retry
            )
        if found.unfit:
            raise NeedsSlowPath(found.unfit)
        return found

    def _note_outcomes(
        self, letters: AlikeLetters, rows: Iterable[tuple[bytes, int, int, int, int]], result: BatchResult
    ) -> None:
        """Note the outcome of each letter: of all of them together, unless their exceptions have messages, which may differ."""
        template, told, share = letters.template, result.letters, self._share
        if not template.layout.messages:
            told[share(template, None)].extend(rows)
            return
        for failure_message, row in zip(letters.failure_messages, rows, strict=True):
            told[share(template, failure_message)].append(row)


def _lineages(letters: AlikeLetters) -> list[int] | None:
    """Compute the lineages of the records that failed; None where the letters do not say which these were."""
    places, lineage = letters.template.layout.origin_offset, letters.template.lineage
    if not places:
        return None
    # To say so in part, or only where in a partition that is not told, is rare.
    said = _all_there([find_content(places, values) for values in letters.header_values])
    if lineage is None:
        raise NeedsSlowPath(range(len(said)))
    return [lineage(offset) for offset in said]


def _all_there(column: Sequence[Any | None]) -> Sequence[Any]:
    if None in column:
        raise NeedsSlowPath(n for n, each in enumerate(column) if each is None)
    return column


def _times(letters: AlikeLetters, now_ms: int) -> _Times:
    """Compute when each letter failed, first failed and was sent last, as `Letter.failed_at_ms` and `decide` do."""
    copies, returned = letters.template.copies_timestamp, letters.template.layout.returned
    failed = [
        ms if ms >= LIKELY_MS and kind in _STAMPED and not (copies and kind == _CREATE) else now_ms for kind, ms in letters.stamps
    ]
    first = sent = failed
    if returned is not None and returned.due_ms is not None:
        dues = letters.moments(returned.due_ms)
        failed = [at if due is None else max(at, due) for at, due in zip(failed, dues, strict=True)]
        first, sent = failed, [at if due is None else due for at, due in zip(failed, dues, strict=True)]
    if returned is not None and returned.first_failed_ms is not None:
        said = letters.moments(returned.first_failed_ms)
        first = [at if earlier is None else min(earlier, at) for at, earlier in zip(failed, said, strict=True)]
    return _Times(failed, first, sent)


def _compute_due_times(
    letters: AlikeLetters, times: _Times, draws: Sequence[int], now_ms: int
) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """When each is due, in milliseconds and in seconds, and the second in which it failed first; all of them in their bounds."""
    template, place = letters.template, letters.template.layout.retry_at
    wishes: Iterable[int | None] = repeat(None, len(draws)) if place is None else _all_there(letters.moments(place))
    due_at_ms, attempt = template.policy.due_at_ms, template.attempt
    decided = [
        due_at_ms(attempt, first_ms, failed_ms, now_ms, draw / DRAWS, wish)
        for first_ms, failed_ms, draw, wish in zip(times.first, times.failed, draws, wishes, strict=True)
    ]
    if {*map(type, decided)} != {int}:
        # What is given up is.
        raise NeedsSlowPath(n for n, at in enumerate(decided) if not isinstance(at, int))
    due = cast(list[int], decided)
    due_s, first_s = [at // 1_000 for at in due], [at // 1_000 for at in times.first]
    if min(due_s) <= 0 or max(*due_s, *first_s) > SECOND_MAX:
        raise NeedsSlowPath(
            n for n, (at, first) in enumerate(zip(due_s, first_s, strict=True)) if at <= 0 or max(at, first) > SECOND_MAX
        )
    return due, due_s, first_s


def _shared_fields(letters: AlikeLetters) -> BlockFields:
    template = letters.template
    header_names = tuple(name for name, _ in [*compress(letters.headers[0], template.layout.kept), *_OF_RETRY])
    attempt, policy = template.attempt_header[1] or b"", template.policy_header[1] or b""
    return BlockFields(template.lane, template.stem, template.target, template.team, attempt, policy, header_names)


def _find_largest(letters: AlikeLetters) -> int:
    """Return a size in bytes that no letter exceeds; headers by the longest of each name, which takes a tenth of the time."""
    columns = [letters.keys, letters.values, *zip(*letters.header_values, strict=True)]
    names = sum(_HEADER_BYTES + _CHARACTER_BYTES * len(name) for name, _ in letters.headers[0])
    return _OURS_BYTES + names + sum(max(map(len, filter(None, column)), default=0) for column in columns)


def _count(template: LetterTemplate, sent_ms: Sequence[int], result: BatchResult) -> None:
    letters, team, made = len(sent_ms), template.team, template.attempt - 1
    result.decided[team, "retry"] += letters
    result.families[template.family] += letters
    result.failures[team, template.cause or template.exception, made] += letters
    if made:
        label = attempt_label(made)
        for minute, of_minute in Counter(at // MINUTE_MS for at in sent_ms).items():
            result.back[Retry(team, template.failed_policy, label, minute)] += of_minute
        result.came_back[template.target] += letters
