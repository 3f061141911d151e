"""How most letters are taken in faster: first failures and those that fail again, whichever framework wrote them, or none.

Most letters of a topic are like many before them: route, plan, target, lane, half of the key and of the outcome are the same.
They are found once (`LetterTemplate`), by reading one such letter as every other is read, and kept under all that they follow
from; each letter fills them in with what it has of its own (`take_alike_letters`). What is written is what `read`,
`AttemptCounter`, `decide` and `EntryBuilder` would write, byte for byte, to which all else is left.
`tests/unit/intake/test_fast_path.py` holds that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

from retry.dead_letters import frameworks
from retry.dead_letters.dead_letter import parse_retries_made
from retry.dead_letters.frameworks import HeaderLayout, Values, find_content, header_values
from retry.intake.alike_letters import AlikeLettersWriter, Candidate, FindSpread, NeedsSlowPath, take_alike_letters
from retry.intake.attempts.attempt_counter import AttemptCounter
from retry.intake.batch import BatchResult
from retry.intake.build_entry import EntryBuilder
from retry.intake.letter_template import LetterTemplate, make_template
from retry.kafka.refused_headers import UnreadableHeaders
from retry.policies.registry import Registry
from retry.telemetry import fingerprint
from retry.telemetry.outcomes import SharedFields

_NO_HEADERS: tuple[tuple[str, ...], tuple[bytes | None, ...]] = (), ()
# What is kept is forgotten when it is this much, by a generous guess; what is longer than most is not kept.
_KEPT_BYTES_MAX, _BYTES_EACH, _LONG_BYTES = 32 << 20, 2_000, 2_000


class FastPath:
    """Prepares what is written for letters like those before them; for `find_spread` see `AlikeLettersWriter`."""

    def __init__(
        self, registry: Registry, attempt_counter: AttemptCounter, entry_builder: EntryBuilder,
        policies: Mapping[bytes | None, str], find_spread: FindSpread,
    ) -> None:  # fmt: skip
        self._registry, self._attempt_counter, self._policies = registry, attempt_counter, policies
        self._writer = AlikeLettersWriter(attempt_counter, self._find_shared, entry_builder, find_spread)
        self._layouts: dict[tuple[str, ...], HeaderLayout | None] = {}
        self._templates: dict[tuple[Any, ...], LetterTemplate | None] = {}
        self._kept_bytes = 0

    def prepare(self, messages: Iterable[Any], now_ms: int, result: BatchResult) -> list[Any]:
        """Add what is to be written for the letters among these that are like others; gives back the rest, in their order."""
        slow, alike, layouts = list[tuple[int, Any]](), defaultdict[LetterTemplate, list[Candidate]](list), self._layouts
        for n, message in enumerate(messages):
            try:
                headers = message.headers() or []
            except SystemError:
                slow.append((n, UnreadableHeaders(message)))
                continue
            # All are pairs; to ask for that takes a third longer.
            header_names, values = zip(*headers) if headers else _NO_HEADERS  # noqa: B905
            try:
                layout = layouts[header_names]
            except KeyError:
                layout = self._new_layout(header_names)
            if layout is not None and (template := self._template(layout, values, message)) is not None:
                # At once, while what was found in a stack trace is remembered.
                failure_message = layout.cut_message(values) if layout.messages else None
                alike[template].append((n, message, headers, values, failure_message))
            else:
                slow.append((n, message))
        for template, letters in alike.items():
            slow += self._write(template, letters, now_ms, result)
        slow.sort(key=itemgetter(0))
        return [message for _, message in slow]

    def _write(
        self, template: LetterTemplate, letters: list[Candidate], now_ms: int, result: BatchResult
    ) -> list[tuple[int, Any]]:
        slow = list[tuple[int, Any]]()
        while letters:
            try:
                self._writer.write(take_alike_letters(template, letters), now_ms, result)
                break
            except NeedsSlowPath as unfit:
                slow += [letter[:2] for n, letter in enumerate(letters) if n in unfit.positions]
                letters = [letter for n, letter in enumerate(letters) if n not in unfit.positions]
        return slow

    def _template(self, layout: HeaderLayout, values: Values, message: Any) -> LetterTemplate | None:
        if layout.plan is None:
            alike: tuple[Any, ...] = message.topic(), message.partition(), layout
        else:
            derived = [find_content(places, values) for places in layout.derived]
            alike = message.topic(), message.partition(), layout, *layout.alike(values), *derived
        try:
            return self._templates[alike]
        except KeyError:
            return self._new_template(layout, values, alike, message)

    def _find_shared(self, template: LetterTemplate, message: bytes | None) -> SharedFields:
        """Return the outcome fields that a letter shares with others of its template whose exceptions say the same."""
        alike: bytes | tuple[bytes, ...] | None = None
        if message is not None:
            alike = folded = fingerprint.fold_digits(message)
            if codes := template.codes_by_message.get(folded):
                alike = folded, *[message[code] for code in codes]
        try:
            return template.shared_by_message[alike]
        except KeyError:
            return self._new_shared(template, message)

    def _new_shared(self, template: LetterTemplate, message: bytes | None) -> SharedFields:
        if message is None:
            return template.shared_by_message.setdefault(None, template.with_message(None))
        shared, folded = template.with_message(header_values.message(message)), fingerprint.fold_digits(message)
        if self._may_keep(folded):
            if codes := fingerprint.find_codes(message):
                template.codes_by_message[folded] = codes
            template.shared_by_message[(folded, *[message[code] for code in codes]) if codes else folded] = shared
        return shared

    def _new_layout(self, header_names: tuple[str, ...]) -> HeaderLayout | None:
        layout = frameworks.find_layout(header_names)
        if self._may_keep(*header_names):
            self._layouts[header_names] = layout
        return layout

    def _new_template(
        self, layout: HeaderLayout, values: Values, alike: tuple[Any, ...], message: Any
    ) -> LetterTemplate | None:
        topic, headers, new = message.topic(), message.headers() or (), None
        route, returned, made, policy = self._registry.route(topic), layout.returned, 0, None
        if returned is not None:
            made = parse_retries_made(values[returned.attempt]) or 0
            policy = None if returned.policy is None else self._policies.get(values[returned.policy])
        if not route.aliases and bool(made) == (returned is not None):
            # Without its value: that of the next letter is another.
            failure = frameworks.recognise([headers[n] for n in layout.telling], topic)
            new = make_template(
                layout, route, topic, partition=message.partition(), failure=failure, made=made, failed_policy=policy,
                attempt_counter=self._attempt_counter,
            )  # fmt: skip
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
