"""The bounded record of recent lineages: how often each letter was sent, whatever came back with it.

Headers are a letter's word for its own history, and they may be dropped or forged. So every batch of intake writes packed
records of what it decided, in the same transaction as its entries, and every worker folds these records into `RecentLineages`. A
letter that comes back is known by its lineage, or, where its headers are gone, by the fingerprint of what does not change on the
way: dead-letter topic, key and value. All of that is kept by team, so that nobody can say anything of another team's letters, and
no team's letters are forgotten for another one's.

| module | what it is |
| --- | --- |
| `lineages` | letters → 64-bit numbers: the lineage, its text, the fingerprint; decisions of one batch ↔ bytes |
| `ring_buffer` | the newest rows of a team, found by lineage and by fingerprint |
| `equal_letters` | sends of equal letters, counted |
| `team_lineages` | all of it together, of one team |
| `recent_lineages` | of all teams, in bounded memory; and which step of which ramp put a lineage |
"""

from __future__ import annotations

from retry.intake.attempts.lineages import (
    MATCHED,
    SECOND_MAX,
    LineageFields,
    LineageTopic,
    belongs_to,
    build_fields,
    failing_consumer,
    fingerprint,
    fingerprints,
    from_header,
    from_headers,
    identity,
    lineage_of,
    lineages_of,
    make_move_row,
    pack,
    pack_records,
    payload,
    payloads,
    short_team_number,
    team_number,
    to_header,
    to_headers,
    unpack,
)
from retry.intake.attempts.recent_lineages import RampedLineages, RecentLineages
from retry.intake.attempts.team_lineages import KnownLineage, TeamLineages

__all__ = [
    "MATCHED", "SECOND_MAX", "KnownLineage", "LineageFields", "LineageTopic", "RampedLineages", "RecentLineages", "TeamLineages",
    "belongs_to", "build_fields", "failing_consumer", "fingerprint", "fingerprints", "from_header", "from_headers", "identity",
    "lineage_of", "lineages_of", "make_move_row", "pack", "pack_records", "payload", "payloads", "short_team_number",
    "team_number", "to_header", "to_headers", "unpack",
]  # fmt: skip
