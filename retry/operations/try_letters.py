"""What a policy file would have made of the newest letters: how many are retried, where to and after how long, how many park.

Each letter is decided twice by the code of intake: as of the time when it was written, which is what a worker would have done
had there been one, and as of now, which is what one does that is started now. Nothing is joined, committed or sent.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from retry.clock import wall_ms
from retry.dead_letters.dead_letter import LIKELY_MS
from retry.errors import TopicsInvalid
from retry.intake.build_entry import BuiltEntry, DecidedLetter
from retry.intake.pointer_letters import Fetch
from retry.kafka import offset_ranges
from retry.kafka.record_fetch import RecordFetcher
from retry.operations.cluster import Cluster, find_spans, read_first_records
from retry.operations.inspect import Inspector
from retry.policies.registry import Registry
from retry.record import RecordLocation

HOUR_MS = 3_600_000
_ASK_S = 20.0


class OutcomeKey(NamedTuple):
    """The key by which letters with the same outcome are counted; `reason` is why they park, None where they are retried."""

    policy: str
    target: str
    reason: str | None


class Waits:
    """How long letters wait for their retry, and when it is due."""

    def __init__(self) -> None:
        self.waits_ms = array("q")
        self.first_due_ms, self.last_due_ms = 1 << 62, 0

    def add_wait(self, failed_at_ms: int, due_at_ms: int) -> None:
        """Count a letter's wait; what is overdue when it is decided goes at once."""
        self.waits_ms.append(max(0, due_at_ms - failed_at_ms))
        self.first_due_ms, self.last_due_ms = min(self.first_due_ms, due_at_ms), max(self.last_due_ms, due_at_ms)

    def spread(self) -> tuple[int, int, int]:
        """Return the shortest wait, the one in the middle, and the longest."""
        ordered = sorted(self.waits_ms)
        return ordered[0], ordered[len(ordered) // 2], ordered[-1]


class Tried:
    """Letters, decided and counted: by topic, by outcome, by framework.

    Attributes:
      waits: of letters that are retried.
      exceptions: by root cause, or exception, how many are retried and how many park for which reason (None: retried).
      now: what a worker would do that begins now, by `at_once`, `within_an_hour`, `later` and `parked`.
    """

    def __init__(self) -> None:
        self.topics, self.counts, self.families = Counter[str](), Counter[OutcomeKey](), Counter[str]()
        self.waits: dict[OutcomeKey, Waits] = {}
        self.exceptions: dict[str | None, Counter[str | None]] = {}
        self.now = dict.fromkeys(("at_once", "within_an_hour", "later", "parked"), 0)

    @property
    def letters(self) -> int:
        return self.topics.total()

    @property
    def retried(self) -> int:
        return sum(count for key, count in self.counts.items() if key.reason is None)

    def add_written(self, decided: DecidedLetter, built: BuiltEntry) -> None:
        key, failure = OutcomeKey(decided.plan.name, built.destination, built.reason), decided.letter.failure
        self.topics[decided.letter.topic] += 1
        self.counts[key] += 1
        self.families[failure.family] += 1
        self.exceptions.setdefault(failure.cause or failure.exception, Counter())[built.reason] += 1
        if built.reason is None:
            self.waits.setdefault(key, Waits()).add_wait(decided.failed_at_ms, decided.due_at_ms)

    def add_now(self, decided: DecidedLetter, built: BuiltEntry, now_ms: int) -> None:
        wait_ms = decided.due_at_ms - now_ms
        when = "at_once" if wait_ms <= 0 else "within_an_hour" if wait_ms <= HOUR_MS else "later"
        self.now["parked" if built.reason else when] += 1


class Remembered:
    """Fetches the records that pointer letters name, those of a batch once."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch, self._records = fetch, dict[RecordLocation, Any]()

    def __call__(self, wanted: Collection[RecordLocation]) -> Mapping[RecordLocation, Any]:
        """Return the records at these places, as `RecordFetcher.fetch` does; fetch only those that are not in memory."""
        if new := [place for place in wanted if place not in self._records]:
            self._records.update(self._fetch(new))
        return {place: self._records[place] for place in wanted}

    def clear_records(self) -> None:
        self._records.clear()


def try_letters(
    inspector: Inspector, batches: Iterable[list[Any]], now_ms: int, forget: Callable[[], None] = lambda: None
) -> Tried:
    """Decide letters and count what comes of it; `forget` is called behind each batch."""
    result = Tried()
    for batch in batches:
        for decided, built in inspector.decide_letters(list(batch), now_ms):
            result.add_now(decided, built, now_ms)
        for message in batch:
            stamp_ms = message.timestamp()[1]
            for decided, built in inspector.decide_letters([message], stamp_ms if LIKELY_MS <= stamp_ms <= now_ms else now_ms):
                result.add_written(decided, built)
        forget()
    return result


def try_newest(cluster: Cluster, registry: Registry, topics: Collection[str], newest: int, say: Callable[[str], None]) -> Tried:
    """Try a registry with the newest letters of each partition of its topics, or only of those named.

    Args:
      say: told which topics of the registry are not there, in a line.

    Raises:
      TopicsInvalid: a topic that is named has no policy, or is not there, or cannot be read.
    """
    if strange := [topic for topic in topics if not registry.reads_topic(topic)]:
        raise TopicsInvalid([f"the policy file has nothing on {topic}" for topic in strange], "name a topic that it attaches")
    is_tried = lambda topic: registry.reads_topic(topic) and (not topics or topic in topics)  # noqa: E731
    spans = find_spans(cluster.admin, offset_ranges.partitions_of(cluster.admin, is_tried, _ASK_S))
    missing = [f"there is no topic {topic}" for topic in sorted({*(topics or registry.exact)} - {span.topic for span in spans})]
    if missing and topics:
        raise TopicsInvalid(missing, "look at its name, and at this user's rights")
    for each in missing:
        say(f"{each}, or this user may not see it: it is left out")
    fetch = Remembered(RecordFetcher(cluster.reader).fetch)
    inspector = cluster.inspector(registry, fetch=fetch)
    newest_spans = cluster.cut_to_newest(spans, newest)
    return try_letters(inspector, read_first_records(cluster.reader, newest_spans), wall_ms(), fetch.clear_records)
