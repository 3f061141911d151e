"""How most letters are taken in faster: those of a first failure, whichever framework wrote them, or none.

Most letters of a topic are like many before them: written by the same framework, of the same partition, about the same
exception. For all of these the answers to most questions are the same: route, plan, target, lane, half of the key and of the
outcome. They are found once (`LetterTemplate`), by reading one such letter as every other is read, and kept under all that
they follow from; each letter fills them in with what it has of its own.
What is written is what `read`, `AttemptCounter`, `decide` and `EntryBuilder` would write, byte for byte; every other letter is
left to them. `tests/unit/intake/test_fast_path.py` holds both against each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any
from zlib import crc32

from retry.dead_letters import frameworks
from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import LIKELY_MS, POINTING, moment
from retry.dead_letters.frameworks import HeaderLayout, Values, first_content, header_values
from retry.delay_queue import envelopes
from retry.delay_queue.envelopes import Entry
from retry.intake.attempts import SECOND_MAX
from retry.intake.attempts.attempt_counter import AttemptCounter
from retry.intake.batch import BatchResult
from retry.intake.build_entry import EntryBuilder
from retry.intake.decide import DRAWS
from retry.intake.letter_template import LetterTemplate, template
from retry.kafka.refused_headers import UnreadableHeaders
from retry.policies.registry import Registry
from retry.record import Headers
from retry.telemetry import fingerprint
from retry.telemetry.outcomes import SharedFields

_CREATE, _STAMPED = 1, (1, 2)
_NO_HEADERS: tuple[tuple[str, ...], tuple[bytes | None, ...]] = (), ()
# What is kept is forgotten when it is this much, by a generous guess; what is longer than most is not kept.
_KEPT_BYTES_MAX, _BYTES_EACH, _LONG_BYTES = 32 << 20, 2_000, 2_000


class FastPath:
    """Prepares what is written for letters like those before them.

    Args:
      shards: how many there are.
    """

    def __init__(self, registry: Registry, attempt_counter: AttemptCounter, entry_builder: EntryBuilder, shards: int) -> None:
        self._registry, self._attempt_counter, self._new = registry, attempt_counter, attempt_counter.new
        self._bytes_max, self._shards = entry_builder.safe_bytes, shards
        self._layouts: dict[tuple[str, ...], HeaderLayout | None] = {}
        self._templates: dict[tuple[Any, ...], LetterTemplate | None] = {}
        self._kept_bytes = 0

    def prepare(self, messages: Iterable[Any], now_ms: int, result: BatchResult) -> list[Any]:
        """Add what is to be written for the letters among these that are like others; gives back the rest, in their order."""
        slow, letters_of, layouts = [], defaultdict[LetterTemplate, int](int), self._layouts
        for message in messages:
            try:
                headers = message.headers()
            except SystemError:
                slow.append(UnreadableHeaders(message))
                continue
            # All are pairs; to ask for that takes a third longer.
            header_names, values = zip(*headers) if headers else _NO_HEADERS  # noqa: B905
            try:
                layout = layouts[header_names]
            except KeyError:
                layout = self._new_layout(header_names)
            template = None if layout is None else self._template(layout, values, message)
            if layout and template and self._fill(template, layout, values, message, headers or [], now_ms, result):
                letters_of[template] += 1
            else:
                slow.append(message)
        for each, letters in letters_of.items():
            result.decided[each.team, "retry"] += letters
            result.families[each.family] += letters
            result.failures[each.team, each.cause or each.exception, 0] += letters
        return slow

    def _template(self, layout: HeaderLayout, values: Values, message: Any) -> LetterTemplate | None:
        if layout.plan is None:
            alike: tuple[Any, ...] = message.topic(), message.partition()
        else:
            derived = [first_content(places, values) for places in layout.derived]
            alike = message.topic(), message.partition(), layout.plan, *layout.alike(values), *derived
        try:
            return self._templates[alike]
        except KeyError:
            return self._new_template(alike, message)

    def _fill(
        self, template: LetterTemplate, layout: HeaderLayout, values: Values, message: Any, original: Headers, now_ms: int,
        result: BatchResult,
    ) -> bool:  # fmt: skip
        """Whether this letter is like others; called for nearly every one, so what can be is done here and not in functions."""
        requested_ms, retry_at = None, layout.retry_at
        if retry_at is not None and (requested_ms := moment(values[retry_at])) is None:
            return False
        key, value, offset, (kind, stamp_ms) = message.key(), message.value(), message.offset(), message.timestamp()
        new = self._history(template, layout, values, key, value)
        if new is None:
            return False
        print_, lineage, number = new
        timestamp_ms = stamp_ms if stamp_ms > 0 and kind in _STAMPED else None
        copied = template.copies_timestamp and kind == _CREATE
        failed_ms = now_ms if stamp_ms < LIKELY_MS or timestamp_ms is None or copied else stamp_ms
        source = b"%b%d" % (template.source, offset)
        draw = crc32(source)
        due_ms = template.policy.due_at_ms(1, failed_ms, failed_ms, now_ms, draw / DRAWS, requested_ms)
        if not isinstance(due_ms, int) or not 0 < due_ms // 1_000 <= SECOND_MAX:
            return False
        headers = original.copy()
        if retry_at is not None:
            del headers[retry_at]
        headers += names.of_retry(lineage, b"1", source, b"%d" % due_ms, template.policy_name, b"%d" % failed_ms)
        envelope = envelopes.encode(Entry(template.target, key, value, headers, timestamp_ms, template.team, failed_ms))
        if len(envelope) > self._bytes_max:
            return False
        shard = (draw if key is None else crc32(key)) % self._shards
        result.entries[shard].append({"key": template.entry_key(due_ms, offset), "value": envelope})
        result.letters[self._shared(template, layout, values)].append((lineage, offset, failed_ms, failed_ms, due_ms))
        result.traces.append((number, print_, due_ms // 1_000, failed_ms // 1_000, 1, 0))
        return True

    def _history(
        self, template: LetterTemplate, layout: HeaderLayout, values: Values, key: bytes | None, value: bytes | None
    ) -> tuple[int, bytes, int] | None:
        """Print, id and number of a letter that says all of itself, and nothing of which is on record."""
        lineage = None
        if layout.plan is None:
            if frameworks.may_be(value):
                return None
        elif key is None and value is None and template.family in POINTING:
            return None
        elif isinstance(origin_offset := first_content(layout.origin_offset, values), int):
            if template.lineage is None:
                return None
            lineage = template.lineage(origin_offset)
        return self._new(template.shared.topic, key, value, lineage, template.is_retry)

    def _shared(self, template: LetterTemplate, layout: HeaderLayout, values: Values) -> SharedFields:
        """What is told of this letter and of others, among them those whose exceptions say the same."""
        message = alike = None
        for n in layout.messages:
            if message := values[n]:
                alike = fingerprint.alike(message)
                break
        try:
            return template.shared_by_message[alike]
        except KeyError:
            shared = template.with_message(header_values.message(message) if message else None)
            if self._may_keep(alike or b""):
                template.shared_by_message[alike] = shared
            return shared

    def _new_layout(self, header_names: tuple[str, ...]) -> HeaderLayout | None:
        layout = frameworks.layout(header_names)
        if self._may_keep(*header_names):
            self._layouts[header_names] = layout
        return layout

    def _new_template(self, alike: tuple[Any, ...], message: Any) -> LetterTemplate | None:
        topic = message.topic()
        route = self._registry.route(topic)
        # Without its value: that of the next letter is another.
        failure = frameworks.recognise(message.headers() or (), topic)
        new = None if route.aliases else template(route, topic, message.partition(), failure, self._attempt_counter)
        if self._may_keep(*alike):
            self._templates[alike] = new
        return new

    def _may_keep(self, *parts: object) -> bool:
        """Whether there is room to keep something under these; makes some where there is none."""
        size = sum(len(part) for part in parts if isinstance(part, (str, bytes)))
        if size > _LONG_BYTES:
            return False
        if self._kept_bytes > _KEPT_BYTES_MAX:
            self._layouts.clear()
            self._templates.clear()
            self._kept_bytes = 0
        self._kept_bytes += _BYTES_EACH + size
        return True
