"""Searches schedules as the admin page of the Go scheduler: by part of the id and by epoch, sorted, a page at a time.

What waits is read from the tables of this process, what was sent from the history topic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nlargest, nsmallest
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Entry
from retry.errors import EntryUnreadable
from retry.kafka.topic_ends import read_newest_records
from retry.record import Headers, encode_base64
from retry.scheduling.messages import schedule_request as names
from retry.scheduling.messages.entry_source import TEAM
from retry.settings import Settings

if TYPE_CHECKING:
    from retry.worker.shards.shard import Shard

# A schedule as the REST API shows it: the fields of the Go scheduler, of what waits and of what was sent.

# As JSON has it; names with a hyphen cannot be written as attributes.
ScheduleJson = TypedDict("ScheduleJson", {
    "id": str, "epoch": int, "timestamp": int, "topic": str, "target-topic": str, "target-key": str, "value": str | None,
})  # fmt: skip


def read_entry_schedule(key: bytes, entry: Entry) -> ScheduleJson:
    by_name, source = dict(entry.headers), entry_keys.read_source(key)
    at_s = entry_keys.due_at_ms(key) // 1_000
    return _build_schedule_json(by_name, at_s, source.topic, entry.destination, entry.key, entry.value)


def read_history_schedule(headers: Headers, key: bytes | None, value: bytes | None) -> ScheduleJson:
    by_name = dict(headers)
    topic, target = _decode_bytes(by_name.get(names.TOPIC)), _decode_bytes(by_name.get(names.TARGET_TOPIC))
    return _build_schedule_json(by_name, _decode_epoch_s(by_name.get(names.EPOCH)), topic, target, key, value)


def _build_schedule_json(
    by_name: Mapping[str, Any], epoch: int, topic: str, target: str, key: bytes | None, value: bytes | None
) -> ScheduleJson:
    return {
        "id": _decode_bytes(by_name.get(names.KEY)), "epoch": epoch, "timestamp": _decode_epoch_s(by_name.get(names.TIMESTAMP)),
        "topic": topic, "target-topic": target, "target-key": _decode_bytes(key), "value": encode_base64(value),
    }  # fmt: skip


def _decode_bytes(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")


def _decode_epoch_s(raw: bytes | None) -> int:
    return int(raw) if raw and len(raw) <= 19 and raw.isascii() and raw.isdigit() else 0


MAX = 1_000
# Deeper pages are for whoever asks for everything.
_SKIP_MAX = 1_000_000
_FIELDS = ("timestamp", "id", "epoch")
_ORDERS = ("asc", "desc")


class QueryInvalid(ValueError):
    """A parameter cannot be used; the message says which and why."""


class Query(NamedTuple):
    """The parameters of a search; the epoch lies from `from_s` to `to_s`, both included, and `rows_max` is up to 1,000."""

    part: str = ""
    from_s: int | None = None
    to_s: int | None = None
    field: str = "timestamp"
    descending: bool = True
    rows_max: int = MAX
    skip: int = 0

    def may_match(self, epoch_s: int) -> bool:
        return (self.from_s is None or epoch_s >= self.from_s) and (self.to_s is None or epoch_s <= self.to_s)

    def matches(self, shown: ScheduleJson) -> bool:
        return self.may_match(shown["epoch"]) and self.part in shown["id"]


ALL = Query()


class SearchPage(NamedTuple):
    total: int
    page: list[ScheduleJson]


def parse_query(given: Mapping[str, str]) -> Query:
    """Read a query from the parameters of a request; raises QueryInvalid where one cannot be used."""
    field, descending = _parse_sort(given.get("sort-by", ""))
    # Zero is how the admin page says that it does not mind.
    most, from_s, to_s = (_parse_number(given, name, 1 << 62) or None for name in ("max", "epoch-from", "epoch-to"))
    skip = _parse_number(given, "skip", _SKIP_MAX)
    return Query(given.get("schedule-id", ""), from_s, to_s, field, descending, rows_max=min(most or MAX, MAX), skip=skip)


def search(schedules: Iterable[ScheduleJson], query: Query) -> SearchPage:
    """Collect one page of the schedules that match, in order; only it and the pages before it are in memory."""
    count = 0

    def count_schedules() -> Iterable[ScheduleJson]:
        nonlocal count
        for shown in schedules:
            if query.matches(shown):
                count += 1
                yield shown

    first = nlargest if query.descending else nsmallest
    page = first(query.skip + query.rows_max, count_schedules(), key=_choose_sort_key(query.field))
    return SearchPage(count, page[query.skip :])


def _choose_sort_key(field: str) -> Callable[[ScheduleJson], Any]:
    if field == "id":
        return lambda shown: (shown["id"], shown["timestamp"])
    return lambda shown: (shown[field], shown["id"])  # type: ignore[literal-required]


def _parse_sort(text: str) -> tuple[str, bool]:
    words = text.lower().split()
    if words and words[0] in _ORDERS:
        words.insert(0, _FIELDS[0])
    field, order = (*words, *(_FIELDS[0], "desc")[len(words) :])[:2]
    if len(words) > 2 or field not in _FIELDS or order not in _ORDERS:
        raise QueryInvalid(f"sort-by: {text!r} is not a field ({', '.join(_FIELDS)}) and an order (asc, desc)")
    return field, order == "desc"


def _parse_number(given: Mapping[str, str], name: str, most: int) -> int:
    text = given.get(name) or "0"
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) > most:
        raise QueryInvalid(f"{name}: {text!r} is not a whole number")
    return int(text)


# Whoever reads slowly keeps one page in memory.
_PAGE = 100
_HISTORY_MAX = 10_000


def iterate_waiting(shards: Iterable[Shard], parked: str, query: Query) -> Iterator[ScheduleJson]:
    """Read the schedules of some shards that may match, a page at a time, in no order; raises TableUnreadable."""
    part = query.part.encode()
    for shard in shards:
        after = b""
        while page := shard.scan_entries(after, _PAGE):
            for _, key, envelope in page:
                # Most are told apart by their bytes, which is a tenth of the work.
                if key[0] == entry_keys.NAMED and part in envelope and query.may_match(entry_keys.due_at_ms(key) // 1_000):
                    entry = _read_schedule(envelope)
                    if entry is not None and entry.team == TEAM and entry.destination != parked:
                        yield read_entry_schedule(key, entry)
            after = page[-1][0]


def _read_schedule(envelope: bytes) -> envelopes.Entry | None:
    """Decode the entry in an envelope; None of what is sealed, or none: nothing is shown of it."""
    try:
        return envelopes.decode(envelope)
    except EntryUnreadable:
        return None


def read_sent_schedules(settings: Settings, topic: str) -> Iterator[ScheduleJson]:
    """Read the newest 10,000 schedules that were sent, as far as that is done in ten seconds; raises as `read_newest_records`."""
    for message, headers in read_newest_records(settings, topic, lambda partitions: _HISTORY_MAX // partitions + 1):
        yield read_history_schedule(headers, message.key(), message.value())
