"""Letters of a worker that their topics refuse for what they are, while all others go: for health and metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from retry.delivery.admission import Admission
from retry.delivery.refused_entries import RefusedEntry
from retry.worker.shards.shard import Shard

_NAMED_MAX = 20


def list_refused(shards: Iterable[Shard], gate: Admission, now_ms: int) -> list[RefusedEntry]:
    """Letters that were put back, or are held, the longest refused first."""
    held = (entry for shard in shards for entry in list(shard.moves.held.refused.values()))
    return sorted((*gate.refused_entries.list_entries(now_ms), *held), key=lambda entry: entry.since_ms)


def name_refused(refused: Iterable[RefusedEntry]) -> dict[str, str]:
    """The first 20 letters, and why each is refused."""
    return {entry.letter: f"{entry.destination}: {entry.why}" for entry, _ in zip(refused, range(_NAMED_MAX), strict=False)}


def count_refused(refused: Iterable[RefusedEntry]) -> dict[str, float]:
    """How many letters each topic refuses."""
    return {target: float(count) for target, count in Counter(entry.destination for entry in refused).items()}
