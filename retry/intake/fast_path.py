"""How plain letters are taken in faster: a first failure that says nothing of itself but, perhaps, when it is to come back.

Most letters of most topics are like that, and for all of one partition the answers to most questions are the same: route,
plan, target, lane, half of the key and of the outcome. They are found once (`Template`), and each letter fills them in.
What is written is what `AttemptCounter`, `decide` and `EntryBuilder` would write, byte for byte; every other letter is left
to them. `tests/unit/intake/test_fast_path.py` holds both against each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple
from zlib import crc32

from backoff import Policy
from retry.dead_letters import frameworks
from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import LIKELY_MS, moment
from retry.dead_letters.failure import UNKNOWN
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Entry
from retry.intake.attempts import SECOND_MAX
from retry.intake.attempts.attempt_counter import AttemptCounter
from retry.intake.batch import BatchResult
from retry.intake.build_entry import EntryBuilder
from retry.intake.decide import DRAWS
from retry.kafka.refused_headers import UnreadableHeaders
from retry.policies.registry import Registry
from retry.record import Headers
from retry.telemetry.outcomes import LetterRows, SharedFields

# Headers that tell something of the failure, which has to be read.
_TELLING = frameworks.KNOWN | names.OURS
_STAMPED = (1, 2)


class Template(NamedTuple):
    """What the plain letters of one partition of a dead-letter topic have in common."""

    topic: str
    team: str
    target: str
    policy: Policy
    policy_name: bytes
    lane: bytes
    stem: bytes
    source: bytes
    outcome: SharedFields


class FastPath:
    """Prepares what is written for plain letters.

    Args:
      shards: how many there are.
    """

    def __init__(self, registry: Registry, attempt_counter: AttemptCounter, entry_builder: EntryBuilder, shards: int) -> None:
        self._registry, self._new, self._bytes_max, self._shards = registry, attempt_counter.new, entry_builder.safe_bytes, shards
        self._templates: dict[tuple[str, int], Template | None] = {}

    def template(self, topic: str, partition: int) -> Template | None:
        """Of this partition; None where its letters need a closer look, each of them."""
        route, failure = self._registry.route(topic), frameworks.unknown(topic)
        plan = None if route.aliases else route.plan_by_names(failure)
        if plan is None or plan.park or plan.ordered or plan.null_cancels or plan.template or plan.retry_to is None:
            return None
        return Template(
            topic,
            route.team,
            plan.retry_to,
            plan.policy,
            plan.name.encode(),
            entry_keys.lane(route.team, topic, plan.retry_to),
            entry_keys.key_stem(topic, partition),
            b"%b/%d/" % (topic.encode(), partition),
            SharedFields(route.team, topic, partition, plan.name, 1, None, "retry", None, plan.retry_to, None, None, route.group),
        )

    def prepare(self, messages: Iterable[Any], now_ms: int, result: BatchResult) -> list[Any]:
        """Add what is to be written for the plain letters among these; gives back the others, in their order."""
        slow, letters_of, templates, told = [], Counter[str](), self._templates, dict[tuple[str, int], LetterRows]()
        for message in messages:
            partition = message.topic(), message.partition()
            if partition not in templates:
                templates[partition] = self.template(*partition)
            template = templates[partition]
            if template is None:
                slow.append(message)
                continue
            try:
                headers = message.headers() or []
            except SystemError:
                slow.append(UnreadableHeaders(message))
                continue
            if partition not in told:
                told[partition] = result.letters[template.outcome]
            if self._fill(template, message, headers, now_ms, told[partition], result):
                letters_of[template.team] += 1
            else:
                slow.append(message)
        for team, letters in letters_of.items():
            result.decided[team, "retry"] += letters
            result.families[UNKNOWN] += letters
            result.failures[team, None, 0] += letters
        return slow

    def _fill(
        self, template: Template, message: Any, original: Headers, now_ms: int, told: LetterRows, result: BatchResult
    ) -> bool:
        """Whether this letter was plain; called for nearly every one, so what can be is done here and not in functions."""
        requested_ms = None
        for name, value in original:
            if name not in _TELLING:
                continue
            if name != names.RETRY_AT_MS or requested_ms is not None or (requested_ms := moment(value)) is None:
                return False
        key, value, offset, (kind, stamp_ms) = message.key(), message.value(), message.offset(), message.timestamp()
        if frameworks.may_be(value) or (new := self._new(template.topic, key, value)) is None:
            return False
        fingerprint, lineage, number = new
        timestamp_ms = stamp_ms if stamp_ms > 0 and kind in _STAMPED else None
        failed_ms = now_ms if stamp_ms < LIKELY_MS or timestamp_ms is None else stamp_ms
        source = b"%b%d" % (template.source, offset)
        draw = crc32(source)
        due_ms = template.policy.due_at_ms(1, failed_ms, failed_ms, now_ms, draw / DRAWS, requested_ms)
        if not isinstance(due_ms, int) or not 0 < due_ms // 1_000 <= SECOND_MAX:
            return False
        due, failed = b"%d" % due_ms, b"%d" % failed_ms
        headers = original if requested_ms is None else [header for header in original if header[0] != names.RETRY_AT_MS]
        headers = headers + names.of_retry(lineage, b"1", source, due, template.policy_name, failed)
        envelope = envelopes.encode(Entry(template.target, key, value, headers, timestamp_ms, template.team, failed_ms))
        if len(envelope) > self._bytes_max:
            return False
        entry_key = entry_keys.key(due_ms, template.stem, offset, template.lane)
        result.entries[(draw if key is None else crc32(key)) % self._shards].append({"key": entry_key, "value": envelope})
        told.append((lineage, offset, failed_ms, failed_ms, due_ms))
        result.traces.append((number, fingerprint, due_ms // 1_000, failed_ms // 1_000, 1, 0))
        return True
