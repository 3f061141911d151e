"""The section `tasks` of a policy file, checked."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UnsetType

from backoff.rate_limit import Limit
from backoff.recurrence import LATE_MS_MIN, MISFIRES
from retry.policies import schema
from retry.policies.limits import limits_of, span_ms
from retry.policies.registry import Registry
from retry.policies.tasks import Tasks
from retry.policies.topic_names import topic_fault
from retry.policies.validation import OWN, target_fault
from retry.policies.yaml_document import Document, suggest_word

FORMATS = ("auto", "avro", "confluent", "json")


def tasks(document: Document, section: object, letters: Registry) -> tuple[Tasks, tuple[Limit, ...]]:
    """Check the section and its limits, beside what the rest of the file says of letters; raises PolicyFileInvalid."""
    written: schema.TasksSection = schema.convert_value(document, section, schema.TasksSection, "tasks")
    _check_topics(document, written, letters)
    for path, target in _list_task_targets(written):
        if fault := target_fault(document, target):
            document.reject_path(path, fault)
        if target in written.topics:
            document.reject_path(path, f"{target} is read as definitions of tasks: a task would define tasks")
        if letters.reads_topic(target):
            document.reject_path(path, f"{target} is read as dead letters")
    for path, word, allowed in (("tasks.format", written.format, FORMATS), ("tasks.misfire", written.misfire, MISFIRES)):
        if word not in allowed:
            document.reject_path(path, f"{word!r:.60} is not one of {', '.join(allowed)}{suggest_word(word, allowed)}")
    section = Tasks(
        topics=frozenset(written.topics), allowed=frozenset(written.allowed_targets), format=written.format,
        park_to=None if isinstance(written.park_to, UnsetType) else written.park_to, misfire=written.misfire,
        late_ms=_late_ms(document, written.late), catch_up_max=written.catch_up,
        shortest_ms=max(1, span_ms(document, written.shortest, "tasks.shortest")),
    )  # fmt: skip
    return section, limits_of(document, written, "tasks")


def _check_topics(document: Document, written: schema.TasksSection, letters: Registry) -> None:
    for n, topic in enumerate(written.topics):
        path = f"tasks.topics[{n}]"
        if fault := topic_fault(topic):
            document.reject_path(path, fault)
        if topic in document.own.unread():
            document.reject_path(path, f"{topic} would be read as definitions of tasks; {OWN}")
        if topic in written.topics[:n]:
            document.reject_path(path, f"{topic} is given twice; keep one")
        if letters.reads_topic(topic):
            document.reject_path(path, f"{topic} is read as dead letters")
        if topic in letters.list_targets():
            document.reject_path(path, f"letters may be sent to {topic}: they would be read as definitions of tasks")


def _list_task_targets(written: schema.TasksSection) -> Iterable[tuple[str, str]]:
    for n, target in enumerate(written.allowed_targets):
        yield f"tasks.allowed_targets[{n}]", target
    if not isinstance(written.park_to, UnsetType):
        yield "tasks.park_to", written.park_to


def _late_ms(document: Document, value: object) -> int:
    if (late_ms := span_ms(document, value, "tasks.late")) < LATE_MS_MIN:
        least = f"{LATE_MS_MIN // 1_000}s"
        document.reject_path("tasks.late", f"{value} is shorter than {least}, in which a run may just be under way")
    return late_ms
