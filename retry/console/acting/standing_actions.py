"""Actions as the replica has them: what pages show, seconds old at most, without a look at Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from retry.console.acting import team_rights
from retry.console.replica.replica import Replica
from retry.console.replica.rows import Scope
from retry.operations.act import overview
from retry.operations.act.overview import ActionOverview


class _Copied(NamedTuple):
    """See `retry.operations.act.overview.Standing`."""

    controls: Sequence[Mapping[bytes, bytes]]

    def standing(self, *prefixes: bytes) -> list[dict[bytes, bytes]]:
        """Those whose keys begin so, by shard."""
        return [{key: value for key, value in each.items() if key.startswith(prefixes)} for each in self.controls]


def actions(replica: Replica, scope: Scope) -> list[ActionOverview]:
    """The actions of the last 30 days that may be seen in a scope, those that were asked for last first.

    Raises:
      RebuildInProgress: the replica is not there yet.
    """
    found = overview.overviews(_Copied(replica.controls()))
    return [each for each in found if team_rights.sees(scope, each.action)]


def action(replica: Replica, scope: Scope, action_id: str) -> ActionOverview | None:
    """One of them, with the letters that failed again; None where there is none.

    Raises:
      RebuildInProgress: the replica is not there yet.
    """
    about = next((each for each in actions(replica, scope) if each.id.hex() == action_id), None)
    if about is None or about.action.ramp is None:
        return about
    return overview.failed_again(about, replica.ramp_failed(about.id))
