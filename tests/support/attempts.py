"""What becomes of letters, in plain Python: the same rules as `retry.analytics.attempts`, said once more without Spark.

Letters, sent and positions are mappings with the columns of `retry.analytics.schemas`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]
Attempt = dict[str, Any]
_OF_FAILURE = ("exception", "cause", "fingerprint", "group")
_SAME = (
    "team", "policy", "topic", "target", "exception", "cause", "fingerprint", "id", "attempt", "first_failed_ms", "failed_ms",
)  # fmt: skip


def distinct(letters: Iterable[Row]) -> list[Row]:
    """Each failure once, however often it was written: the record that lies first."""
    found: dict[tuple[Any, ...], Row] = {}
    for letter in sorted(letters, key=_place):
        if letter["action"] is None:
            found.setdefault(_name(letter), letter)
    return list(found.values())


def list_standing(letters: Iterable[Row]) -> list[Row]:
    """The last decision on each letter: that of the last action, else the one at its failure."""
    letters = list(letters)
    first: dict[tuple[Any, ...], Row] = {}
    last: dict[tuple[Any, ...], Row] = {}
    for letter in sorted(distinct(letters), key=lambda x: x["attempt"]):
        first.setdefault((letter["id"], letter["source"]), letter)
    for letter in sorted(letters, key=lambda x: (x["taken_ms"], *_place(x))):
        if letter["action"] is not None:
            place = letter["id"], letter["source"]
            known = {name: letter[name] or first.get(place, letter)[name] for name in _OF_FAILURE}
            last[place] = {**letter, **known}
    return [*(each for each in distinct(letters) if (each["id"], each["source"]) not in last), *last.values()]


def _place(letter: Row) -> tuple[Any, ...]:
    return letter["kafka_topic"], letter["kafka_partition"], letter["kafka_offset"]


def attempts(
    letters: Iterable[Row], sent: Iterable[Row], positions: Iterable[Row], *, settle_ms: int, until_ms: int
) -> list[Attempt]:
    """A row for each decision to retry, with the columns of `ATTEMPT`."""
    letters, samples = list(letters), list(positions)
    once = distinct(letters)
    coming = group_rows(once, lambda x: (x["id"], x["attempt"]), lambda x: (x["taken_ms"], x["source"]))
    lying = group_rows(
        {(x["topic"], x["partition"], x["offset"], x["id"], x["attempt"]): x for x in sent}.values(),
        lambda x: (x["topic"], x["id"], x["attempt"]),
        lambda x: (x["due_ms"] is not None, x["due_ms"], x["partition"], x["offset"]),
    )
    stand = list_standing(letters)
    retried = [letter for letter in stand if letter["decision"] in ("retry", "return")]
    nth_taken = _rank(retried, lambda x: (x["id"], x["attempt"]), lambda x: (x["taken_ms"], x["source"]))
    nth_due = _rank(retried, lambda x: (x["target"], x["id"], x["attempt"]), lambda x: (x["due_ms"], x["source"]))
    every = sorted([*once, *(x for x in stand if x["action"])], key=lambda x: (x["attempt"], x["taken_ms"], x["source"]))
    first_policies = {x["id"]: x["policy"] for x in every[::-1]}
    rows = []
    for letter in retried:
        back = _nth(coming[letter["id"], letter["attempt"] + 1], nth_taken[_name(letter)])
        record = _nth(lying[letter["target"], letter["id"], letter["attempt"]], nth_due[_name(letter)])
        row = _row(letter, back, record, samples, settle_ms, until_ms)
        rows.append(row | {"first_policy": first_policies[letter["id"]]})
    return rows


def _row(letter: Row, back: Row | None, record: Row | None, samples: list[Row], settle_ms: int, until_ms: int) -> Attempt:
    group = letter.get("group")
    assumed = (group, letter["target"]) not in {(sample["group"], sample["topic"]) for sample in samples}
    passed = [
        sample["at_ms"]
        for sample in samples
        if record and [sample[name] for name in ("group", "topic", "partition")] == [group, record["topic"], record["partition"]]
        and sample["offset"] > record["offset"]
    ]  # fmt: skip
    sent_ms, passed_ms = record["sent_ms"] if record else None, min(passed, default=None)
    reached_ms = letter["due_ms"] if sent_ms is None else sent_ms
    if not assumed:
        reached_ms = None if passed_ms is None else max(passed_ms, reached_ms)
    if back:
        fate, ended_ms = "failed", back["taken_ms"]
    elif record is None:
        fate, ended_ms = "waiting", until_ms
    elif reached_ms is not None and reached_ms + settle_ms <= until_ms:
        fate, ended_ms = "recovered", reached_ms + settle_ms
    else:
        fate, ended_ms = "pending", until_ms
    delay_ms = letter.get("delay_ms")
    return {
        **{name: letter.get(name) for name in _SAME},
        "due_ms": letter["due_ms"],
        "delay_ms": letter["due_ms"] - letter["failed_ms"] if delay_ms is None else delay_ms,
        "sent_ms": sent_ms,
        "passed_ms": passed_ms,
        "back_ms": back["taken_ms"] if back else None,
        "back_as": back["decision"] if back else None,
        "ended_ms": ended_ms,
        "bytes": record["bytes"] if record else None,
        "fate": fate,
        "assumed": assumed,
        "source": letter["source"],
        "action_kind": letter["action_kind"],
        "returned": letter["decision"] == "return",
    }


def lineages(letters: Iterable[Row], made: Iterable[Attempt]) -> dict[str, str]:
    """Fate of each lineage, by id: that of its newest letter."""
    newest: dict[str, Row] = {}
    for letter in sorted(list_standing(letters), key=lambda x: (x["failed_ms"], x["attempt"])):
        newest[letter["id"]] = letter
    fates = {_name(row): row["fate"] for row in made}
    return {
        id_: fates[_name(letter)] if letter["decision"] in ("retry", "return")
        else "discarded" if letter["decision"] != "park"
        else "expired" if letter["reason"] == "max_age" else "parked"
        for id_, letter in newest.items()
    }  # fmt: skip


def _name(letter: Row) -> tuple[Any, ...]:
    return letter["id"], letter["attempt"], letter["source"]


def group_rows(rows: Iterable[Row], group: Any, order: Any) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        found[group(row)].append(row)
    for members in found.values():
        members.sort(key=order)
    return found


def _rank(rows: Iterable[Row], group: Any, order: Any) -> dict[tuple[Any, ...], int]:
    return {_name(row): n for members in group_rows(rows, group, order).values() for n, row in enumerate(members)}


def _nth(rows: list[Row], n: int) -> Row | None:
    return rows[n] if n < len(rows) else None
