"""Each letter exactly once and unchanged: among the retries that were read, and among the entries that wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from confluent_kafka import KafkaError, Message

from retry.delay_queue import blocks, envelopes

from .letters import MEASURED, PARTITIONS, Incorrect, key, letter, parsed, read_committed


def retries(batches: Iterable[tuple[float, list[Message]]], letters: int, kind: bytes = MEASURED) -> None:
    """Every letter came back once, with its key, value and headers and the count of its retries.

    Raises:
      Incorrect: with how many did not.
    """
    seen: Counter[int] = Counter()
    changed: list[str] = []
    for _, batch in batches:
        for message in batch:
            number = _number(message.key(), message.value(), kind, changed)
            headers = message.headers() or []
            found = dict(headers)
            if found.get("x-origin") != b"bench" or found.get("retry-attempt") != b"1" or "retry-at-ms" in found:
                changed.append(f"headers of {number}: {headers}")
            seen[number] += 1
    _once(seen, letters, changed)


def waiting(bootstrap: str, changelog: str, letters: int) -> None:
    """The fold of the changelog holds an entry for every letter, and nothing else.

    Raises:
      Incorrect: with how many it does not hold, or holds twice.
    """
    reader = read_committed(bootstrap, changelog, **{"enable.partition.eof": True})
    rows: dict[bytes, int] = {}
    changed: list[str] = []
    open_partitions = PARTITIONS
    while open_partitions:
        for message in reader.consume(10_000, 1.0):
            if message.error():
                if message.error().code() != KafkaError._PARTITION_EOF:
                    raise Incorrect(str(message.error()))
                open_partitions -= 1
                continue
            for entry_key, envelope in blocks.list_rows(message.key() or b"", message.value()):
                if envelope is None:
                    rows.pop(entry_key, None)
                    continue
                entry = envelopes.decode(envelope)
                kind = (entry.value or b"")[6:7]
                rows[entry_key] = _number(entry.key, entry.value, kind, changed) if kind == MEASURED else -1
    reader.close()
    _once(Counter(rows.values()), letters, changed)


def _number(name: bytes | None, value: bytes | None, kind: bytes, changed: list[str]) -> int:
    """Which letter this is; -1 and a remark where it is none that was written."""
    try:
        found, number, due_ms = parsed(value or b"")
    except ValueError:
        changed.append(f"no letter: {value!r}")
        return -1
    if (found, name, value) != (kind, key(number), letter(number, due_ms, kind)):
        changed.append(f"letter {number}: key {name!r}, value {value!r}")
    return number


def _once(seen: Counter[int], letters: int, changed: list[str]) -> None:
    lost = [number for number in range(letters) if not seen[number]]
    doubled = [number for number, times in seen.items() if times > 1]
    strange = [number for number in seen if not 0 <= number < letters]
    if lost or doubled or strange or changed:
        raise Incorrect(
            f"{len(lost):,} lost {lost[:5]}, {len(doubled):,} more than once {doubled[:5]}, {len(strange):,} unknown "
            f"{strange[:5]}, {len(changed):,} changed {changed[:2]}"
        )
