"""The bounded record of recent lineages: how often each letter was sent, whatever came back with it.

Headers are a letter's word for its own history, and they may be dropped or forged. So every batch of intake writes one
packed record of what it decided, in the same transaction as its entries, and every worker folds these records into
`RecentLineages`. A letter that comes back is known by its lineage, or, where its headers are gone, by the fingerprint of what
does not change on the way: dead-letter topic, key and value.

| module | what it is |
| --- | --- |
| `lineage_id` | letters → 64-bit numbers: the lineage, its text, the fingerprint |
| `lineage_codec` | decisions of one batch ↔ bytes |
| `ring_buffer` | the newest rows, found by lineage and by fingerprint |
| `equal_letters` | sends of equal letters, counted |
| `recent_lineages` | all of it together |
| `ramped_lineages` | which step of which ramp put a lineage |
"""

from __future__ import annotations

from retry.intake.attempts.lineage_codec import MATCHED, SECOND_MAX, LineageFields, moved, pack, records, row, unpack
from retry.intake.attempts.lineage_id import (
    counted,
    counted_all,
    fingerprint,
    fingerprints,
    from_header,
    identity,
    lineage_of,
    lineages_of,
    payload,
    payloads,
    silent,
    to_header,
)
from retry.intake.attempts.ramped_lineages import RampedLineages
from retry.intake.attempts.recent_lineages import KnownLineage, RecentLineages

__all__ = [
    "MATCHED",
    "SECOND_MAX",
    "KnownLineage",
    "LineageFields",
    "RampedLineages",
    "RecentLineages",
    "counted",
    "counted_all",
    "fingerprint",
    "fingerprints",
    "from_header",
    "identity",
    "lineage_of",
    "lineages_of",
    "moved",
    "pack",
    "payload",
    "payloads",
    "records",
    "row",
    "silent",
    "to_header",
    "unpack",
]
