"""Actions as the replica has them, and who may see them: by the teams whose letters they are about."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from retry.console.replica.rows import Scope
from retry.delay_queue.action_records import Action
from retry.operations.act import overview
from retry.operations.act.overview import ActionOverview


class CopiedControls(NamedTuple):
    """Control records by shard, copied from the replica; implements `retry.operations.act.overview.Standing`."""

    controls: Sequence[Mapping[bytes, bytes]]

    def list_records(self, *prefixes: bytes) -> list[dict[bytes, bytes]]:
        """Return the records whose keys begin with one of the prefixes, one dictionary for each shard."""
        return [{key: value for key, value in each.items() if key.startswith(prefixes)} for each in self.controls]


def sees(scope: Scope, action: Action) -> bool:
    """Whether all letters of an action are of teams in a scope; of older ones, and of letters of no known team, nobody knows."""
    return scope is None or (bool(action.teams) and scope.issuperset(action.teams))


def controls(connection: sqlite3.Connection) -> list[Mapping[bytes, bytes]]:
    """Pauses and actions by shard, as `action_state.read_states` and `control_records.pauses` read them."""
    by_shard: defaultdict[int, dict[bytes, bytes]] = defaultdict(dict)
    for shard, key, value in connection.execute("SELECT shard, key, value FROM controls"):
        by_shard[shard][key] = value
    # What is asked of one shard is asked of all; right after a start the follower does not know yet how many there are.
    return [by_shard[shard] for shard in range(max(by_shard, default=-1) + 1)]


def list_visible_actions(standing: Sequence[Mapping[bytes, bytes]], scope: Scope) -> list[ActionOverview]:
    """The actions of the last 30 days that may be seen in a scope, those that were asked for last first.

    Args:
      standing: see `controls`.
    """
    return [each for each in overview.overviews(CopiedControls(standing)) if sees(scope, each.action)]
