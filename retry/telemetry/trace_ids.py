"""Ids of traces and spans, made of what a letter says of itself: each worker makes the same, without a library."""

from __future__ import annotations

from xxhash import xxh3_64_intdigest, xxh3_128_intdigest


def make_span_ids(lineage: bytes, attempt: int) -> tuple[int, int]:
    """Make trace and span ids of one attempt, neither of them 0."""
    return xxh3_128_intdigest(lineage) or 1, xxh3_64_intdigest(b"%b/%d" % (lineage, attempt)) or 1
