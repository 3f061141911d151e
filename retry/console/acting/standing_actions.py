"""Actions as the replica has them: what pages show, seconds old at most, without a look at Kafka."""

from __future__ import annotations

from retry.console.replica import seen_actions
from retry.console.replica.replica import Replica
from retry.console.replica.rows import Scope
from retry.operations.act import overview
from retry.operations.act.overview import ActionOverview


def list_recent_actions(replica: Replica, scope: Scope) -> list[ActionOverview]:
    """The actions of the last 30 days that may be seen in a scope, those that were asked for last first.

    Raises:
      RebuildInProgress: the replica is not there yet.
    """
    return seen_actions.list_visible_actions(replica.controls(), scope)


def action(replica: Replica, scope: Scope, action_id: str) -> ActionOverview | None:
    """One of them, with the letters that failed again; None where there is none.

    Raises:
      RebuildInProgress: the replica is not there yet.
    """
    about = next((each for each in list_recent_actions(replica, scope) if each.id.hex() == action_id), None)
    if about is None or about.action.ramp is None:
        return about
    return overview.failed_again(about, replica.ramp_failed(about.id))
