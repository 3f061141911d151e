"""Which letters of one exception may be counted together: those of topics and policies that do not differ.

One exception of one team may come from several topics, whose consumers need not have anything in common. So each topic and
policy is counted by itself, and two are put together only where Fisher's exact test finds no difference at any attempt. It must
have had something to look at: at every attempt that either has come to, both know the end of five retries.
"""

from __future__ import annotations

from collections.abc import Mapping

from retry.analytics.advice.evidence import Evidence, Kind
from retry.analytics.statistics.homogeneity import differ

# How often two that do not differ are kept apart nevertheless.
_LEVEL = 0.05
_TESTED = 5


def pool_evidence(evidence: Mapping[Kind, Evidence]) -> dict[Kind, Evidence]:
    """Evidence by team and exception, and for as many topics and policies together as do not differ; the largest first."""
    groups: dict[tuple[str, str | None], list[tuple[Kind, Evidence]]] = {}
    for kind, each in sorted(evidence.items(), key=lambda one: (-one[1].letters, str(one[0]))):
        known = groups.setdefault((kind.team, kind.exception), [])
        like = next((n for n, (_, other) in enumerate(known) if may_be_pooled(other, each)), None)
        if like is None:
            known.append((kind, each))
        else:
            known[like] = _pool_pair(known[like], (kind, each))
    return {kind: each for known in groups.values() for kind, each in known}


def may_be_pooled(one: Evidence, other: Evidence) -> bool:
    """Whether a test at each attempt finds no difference."""
    tested = range(1, max(one.attempts, other.attempts) + 1)
    if any(min(one.count_ended(attempt), other.count_ended(attempt)) < _TESTED for attempt in tested):
        return False
    level = _LEVEL / max(1, len(tested))
    return all(
        differ((one.count_recovered(n), one.count_ended(n)), (other.count_recovered(n), other.count_ended(n))) > level
        for n in tested
    )  # fmt: skip


def _pool_pair(one: tuple[Kind, Evidence], other: tuple[Kind, Evidence]) -> tuple[Kind, Evidence]:
    kind, more = one[0], other[0]
    topics, policies = {*kind.topics, *more.topics}, {*kind.policies, *more.policies}
    evidence = Evidence.from_cells([*one[1].every, *other[1].every])
    return kind._replace(topics=tuple(sorted(topics)), policies=tuple(sorted(policies))), evidence
