"""The product with one rule of blocks switched off.

| mutant | what it does |
| --- | --- |
| exploded-without-null | the entries of a block get records of their own, and the block stays |
| null-without-all | a block ends, and one of the entries that were to stay is not put |
| count-off | a block counts for one entry, in every part of the product |
| exploded-by-two | a block is exploded without the proof that its shard is still this worker's |
| exploded-to-life | an entry that was put when its block was exploded, and sent, is put again by the fold |
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any
from unittest.mock import patch

from retry.delay_queue import blocks
from retry.delay_queue.blocks import Row
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.changelog_records import UnfoldedChanges
from retry.delivery import movers

Patches = list[Any]
_split = blocks.split_blocks


def _without_null() -> Patches:
    def split(rows: Iterable[tuple[bytes, bytes]], leaving: Collection[bytes]) -> Iterator[Row]:
        return (row for row in _split(rows, leaving) if row[1] is not None)

    return [patch.object(blocks, "split_blocks", split)]


def _without_all() -> Patches:
    def split(rows: Iterable[tuple[bytes, bytes]], leaving: Collection[bytes]) -> Iterator[Row]:
        for row in rows:
            yield from list(_split([row], leaving))[1:]

    return [patch.object(blocks, "split_blocks", split)]


def _count_off() -> Patches:
    # Most modules have the function by a name of their own.
    product = [module for name, module in sys.modules.items() if name.startswith("retry.")]
    counting = [module for module in product if vars(module).get("count_entries") is blocks.count_entries]
    return [patch.object(module, "count_entries", lambda _: 1) for module in counting]


def _by_two() -> Patches:
    def explode(writer: Any, table: Any, changelog: Any, rows: Any) -> None:
        # What is published takes no part in the proof.
        entries = [Entry(changelog.topic, key, value, [], None, "") for key, value in blocks.split_blocks(rows, ())]
        writer.begin()
        writer.publish(entries, 0, [changelog.partition] * len(entries))
        writer.commit()
        table.explode([key for key, _ in rows])

    return [patch.object(movers, "explode_blocks", explode)]


def _to_life() -> Patches:
    return [patch.object(UnfoldedChanges, "is_put", lambda *_: False)]


BLOCK_MUTANTS: dict[str, Callable[[], Patches]] = {
    "exploded-without-null": _without_null, "null-without-all": _without_all, "count-off": _count_off,
    "exploded-by-two": _by_two, "exploded-to-life": _to_life,
}  # fmt: skip
