"""What a worker would make of letters, without being one: nothing is joined, committed or sent.

It is intake up to its decision, with a record of lineages that knows of no past send. So a letter that came back without
its `retry-id` counts as a first failure here, which a worker would know better.

| key of a row | meaning |
| --- | --- |
| `topic`, `partition`, `offset` | the letter |
| `family` | who wrote it |
| `origin_topic`, `origin_partition`, `origin_offset`, `consumer_group` | what failed, and whose |
| `attempt` | failed deliveries that the letter tells of |
| `exception`, `cause`, `message`, `stage` | of the failure |
| `lineage` | what `retry-id` would be |
| `policy` | what `retry-policy` would be |
| `decision`, `reason`, `target` | `retry` or `park`, why it parks, and the topic that it goes to |
| `due_at_ms` | when the retry is due; null where it parks |
| `pointer` | true, and there only where the payload lies elsewhere and was not fetched: decided without it |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from retry.intake.attempts import RecentLineages
from retry.intake.attempts.attempt_counter import AttemptCounter
from retry.intake.build_entry import BuiltEntry, DecidedLetter, EntryBuilder
from retry.intake.intake import Fetch, Intake
from retry.kafka import topics
from retry.policies.registry import Registry

InspectedLetter = dict[str, object]

_NO_LINEAGES = 16
_FAILURE = ("exception", "cause", "message", "cause_message", "stage")
_ORIGIN = ("origin_topic", "origin_partition", "origin_offset", "consumer_group")


class Inspector:
    """Decides letters as a worker with this registry would.

    Args:
      cluster_id: of the brokers that the letters are from; a part of the lineage where they tell coordinates.
      bytes_max: by topic, the largest record that it takes; those that are not there take what brokers do by default.
      fetch: gets the records that pointer letters name; None where nobody can.
    """

    def __init__(
        self, registry: Registry, app_id: str, cluster_id: str, bytes_max: Mapping[str, int], fetch: Fetch | None = None
    ) -> None:
        names = topics.build_topic_names(app_id)
        attempt_counter = AttemptCounter(RecentLineages(_NO_LINEAGES), cluster_id, registry.retry_targets_by_team())
        entry_builder = EntryBuilder(names.changelog, names.parked, bytes_max)
        self._intake = Intake(registry, attempt_counter, entry_builder, fetch, names, {names.changelog: 1, names.lineage: 1})
        self._fetches = fetch is not None

    def decide_letters(self, letters: Iterable[Any], now_ms: int) -> Iterator[tuple[DecidedLetter, BuiltEntry]]:
        """Decide letters as intake would, in their order; yield each decision with the entry that carries it out."""
        return self._intake.decide_letters(letters, now_ms)

    def inspect_letters(self, letters: Iterable[Any], now_ms: int) -> Iterator[InspectedLetter]:
        """Decide letters, and yield a row for each, with the keys that the module's docstring lists."""
        for decided, packed in self.decide_letters(letters, now_ms):
            pointer = {} if self._fetches or not decided.letter.is_pointer() else {"pointer": True}
            yield {**_inspect_letter(decided, packed), **pointer}


def _inspect_letter(decided: DecidedLetter, packed: BuiltEntry) -> InspectedLetter:
    letter, failure = decided.letter, decided.letter.failure
    return {
        "topic": letter.topic, "partition": letter.partition, "offset": letter.offset, "family": failure.family,
        **{name: getattr(failure, name) for name in _ORIGIN},
        "attempt": failure.attempts,
        **{name: getattr(failure, name) for name in _FAILURE},
        "lineage": decided.trace.id.decode(), "policy": decided.plan.name,
        "decision": "park" if packed.reason else "retry", "reason": packed.reason, "target": packed.destination,
        "due_at_ms": None if packed.reason else decided.due_at_ms,
    }  # fmt: skip
