"""Whether any worker runs, as the group that shares the shards tells; where none does, since when that is seen here."""

from __future__ import annotations

from typing import NamedTuple

from retry.console.web.app import Console
from retry.console.web.looked_up import LookedUp
from retry.kafka import consumer_groups


class Workers(NamedTuple):
    """What is known of the workers.

    Attributes:
      running: how many; None where nobody tells.
      silent_since_ms: since when none runs, as far as this console has seen; None while one does.
    """

    running: int | None
    silent_since_ms: int | None = None


def silent_workers(console: Console) -> LookedUp[Workers]:
    """Looks for them."""

    def look(before: Workers) -> Workers:
        cluster = console.cluster()
        running = consumer_groups.members(cluster.admin, cluster.names.table_group)
        return Workers(running, (before.silent_since_ms or console.clock_ms()) if running == 0 else None)

    return LookedUp("workers", look, Workers(None))
