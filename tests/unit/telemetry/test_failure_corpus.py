"""Failures are grouped as people would group them: measured over pairs of what many frameworks and libraries write.

A pair is right where both are of one group and have one fingerprint, or of two and have two. Precision is the share of pairs with
one fingerprint that are of one group, recall the share of pairs of one group that have one fingerprint. A part of the headings is
held out: whoever changes how messages are normalized looks at the failures of the others alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import yaml

from retry.dead_letters.failure import Failure
from retry.dead_letters.frameworks import recognise
from retry.telemetry.fingerprint import compute_fingerprint
from tests import fixtures

_CORPUS: dict[str, list[dict[str, Any]]] = yaml.safe_load((Path(fixtures.__path__[0]) / "failure_groups.yaml").read_text())
_JAVA = "{exception}: {message}\n\tat com.acme.Listener.handle(Listener.java:17)\n{root}\n\t... 23 more\n"
_DOTNET = "{exception}: {message}\r\n{root}\r\n   at Acme.Orders.Save()\r\n   --- End of inner exception stack trace ---\r\n"
# Family → the headers of class, message and stack trace, the trace, and the line of the root cause in it.
_FRAMEWORKS = {
    "spring": [*(f"kafka_dlt-exception-{what}" for what in ("fqcn", "message", "stacktrace")), _JAVA, "Caused by: "],
    "kafka-connect": [
        *(f"__connect.errors.exception.{what}" for what in ("class.name", "message", "stacktrace")), _JAVA, "Caused by: ",
    ],
    "nservicebus": [
        *(f"NServiceBus.ExceptionInfo.{what}" for what in ("ExceptionType", "Message", "StackTrace")), _DOTNET, " ---> ",
    ],
}  # fmt: skip


def is_held_out(heading: str) -> bool:
    return crc32(heading.encode()) % 3 == 0


def fingerprint_of(group: dict[str, Any], failure: str | dict[str, str | None]) -> str | None:
    if isinstance(failure, str):
        return compute_fingerprint(group["class"], failure)
    if "class" in failure:
        return compute_fingerprint(failure["class"], failure["message"])
    return compute_fingerprint(*in_headers(group["framework"], failure).root)


def in_headers(framework: str, failure: dict[str, str | None]) -> Failure:
    """Read what is in the headers that a framework writes of this failure."""
    exception, message, trace, lines, mark = _FRAMEWORKS[framework]
    root = f"{mark}{failure['root']}" if failure["root"] else "\tat com.acme.Main.run(Main.java:4)"
    said = {exception: failure["exception"], message: failure["message"], trace: lines.format_map({**failure, "root": root})}
    return recognise([(name, (text or "").encode()) for name, text in said.items()], "orders.DLT")


def fingerprints(held_out: bool) -> Iterator[tuple[str, str | None]]:
    """Group and fingerprint of each failure."""
    for heading, groups in _CORPUS.items():
        if is_held_out(heading) == held_out:
            for group in groups:
                for failure in group["failures"]:
                    yield f"{heading}: {group['group']}", fingerprint_of(group, failure)


def count_pairs(counts: Counter[Any]) -> int:
    return sum(n * (n - 1) // 2 for n in counts.values())


@pytest.mark.parametrize("held_out", [False, True], ids=["tuned on", "held out"])
def test_groups_are_those_that_people_would_make(held_out: bool, record_property: Any) -> None:
    found = list(fingerprints(held_out))
    right = count_pairs(Counter(found))
    precision = right / count_pairs(Counter(number for _, number in found))
    recall = right / count_pairs(Counter(group for group, _ in found))
    record_property("precision", precision)
    record_property("recall", recall)
    assert len(found) > 250
    assert min(precision, recall) >= 0.98, f"precision {precision:.4f}, recall {recall:.4f} of {right} pairs"


def test_the_parts_share_no_group_and_no_failure() -> None:
    parts = [{number for _, number in fingerprints(held_out)} for held_out in (False, True)]
    shared = parts[0] & parts[1]
    assert len(shared) < 10, "what both parts know is not held out"


def test_wrappers_around_different_failures_of_one_class_do_not_make_them_one() -> None:
    """Connect puts one message around all failures of a connector."""
    wrapper = {"exception": "a.Wrapper", "message": "Tolerance exceeded in error handler"}
    roots = ["a.SqlException: no table 17", "a.SqlException: no column 17", "a.SqlException", "b.Refused: no table 4"]
    kinds = [in_headers("kafka-connect", wrapper | {"root": root}).root for root in roots]
    assert kinds[:3] == [
        ("a.SqlException", "no table 17"), ("a.SqlException", "no column 17"), ("a.SqlException", wrapper["message"]),
    ]  # fmt: skip
    assert len({compute_fingerprint(*kind) for kind in kinds}) == len(roots)
