"""When an action will be done at the earliest: by when its letters are due, by rate limits, and by what its steps wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from backoff.rate_limit import Limit
from retry.delay_queue.action_records import REDIRECT, RETRY
from retry.operations.act.preview import Preview
from retry.policies.registry import Registry

# What a shard does in a second; see docs/evidence.
_LETTERS_S = 3_000


class Estimate(NamedTuple):
    """How long it takes at least.

    Attributes:
      slowest: what takes longest of all that holds it up, in words.
    """

    ms: int
    slowest: str


def estimate(found: Preview, registry: Registry, shards: int) -> Estimate:
    """How long a preview takes if every letter recovers and nothing else is sent to the same targets.

    Args:
      shards: partitions of the changelog.
    """
    count, request = found.chosen.count, found.request
    worked = Estimate(count * 1_000 // (_LETTERS_S * shards), f"workers act on some {_LETTERS_S:,} letters/s in each shard")
    sent = max((worked, *_estimate_limits(found, registry)), key=lambda each: each.ms)
    waits = [sent]
    if request.due.at_ms is not None:
        waits.append(Estimate(max(0, request.due.at_ms - found.at_ms), "they are due at a later time"))
    waits.append(Estimate(request.due.spread_ms + request.due.postpone_ms, "they are spread or postponed"))
    if (ramp := request.action.ramp) is not None:
        each_ms = max(ramp.settle_ms, ramp.silence_ms) if found.silent else ramp.settle_ms
        waits.append(Estimate(each_ms * len(ramp.steps), f"{len(ramp.steps)} steps are judged after {each_ms / 1_000:g} s each"))
    return Estimate(sum(each.ms for each in waits), max(waits, key=lambda each: each.ms).slowest)


def _estimate_limits(found: Preview, registry: Registry) -> Iterator[Estimate]:
    """Estimate the duration by each rate limit, of a target or a team, that holds for the letters that are sent."""
    action, groups = found.request.action, found.chosen.groups
    if action.kind not in (RETRY, REDIRECT):
        return
    targets: Mapping[str, int] = {action.target: found.chosen.count} if action.target else groups["target"]
    for target, count in targets.items():
        if (limit := registry.target_limits.get(target)) is not None:
            yield _make_estimate(f"target {target}", count, [limit])
    for team, count in groups["team"].items():
        if limits := registry.team_limits.get(team):
            yield _make_estimate(f"team {team}", count, limits)


def _make_estimate(whose: str, count: int, limits: Sequence[Limit]) -> Estimate:
    slowest = max(limits, key=lambda limit: limit.period_ms / limit.tokens)
    return Estimate(count * slowest.period_ms // slowest.tokens, f"{whose} may have {slowest.format_limit()}")
