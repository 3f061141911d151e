"""What a member of a group subscribes to: of very many names, only those of topics that there are.

librdkafka (2.16) compares every name with every topic that it hears of, each time that it hears of any. Fourteen thousand names
that nobody has made topics of yet keep its main thread so busy that it misses heartbeats: the group throws the member out again
and again, and nothing is read of any team.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from retry import clock

log = logging.getLogger(__name__)

_EVERY_S, _ASK_S = 4.0, 5.0
# So many that are not there yet are left to the client, which finds them by itself, and says in its log which they are.
_MISSING_MAX = 200


class Subscription:
    """The names that a group's members read, and what of these its client is told.

    Attributes:
      names: topics, and patterns that begin with `^`.
      topics: what to subscribe to. All names; but of more than two hundred that are no topics yet, two hundred.
    """

    def __init__(self, admin: AdminClient, names: Sequence[str]) -> None:
        self._admin = admin
        self.replace_names(names)

    def replace_names(self, names: Sequence[str]) -> None:
        """Have other names read from now on."""
        self.names, self._looking = list(names), clock.Interval(_EVERY_S)
        chosen = self._choose()
        # Where nobody says which topics there are, none may be left out.
        self.topics = self.names if chosen is None else chosen

    def refresh_topics(self) -> bool:
        """Look every few seconds for topics that were made since; true where there is something else to subscribe to."""
        if not self._looking.is_due():
            return False
        chosen = self._choose()
        if chosen is None or chosen == self.topics:
            return False
        self.topics = chosen
        return True

    def _choose(self) -> list[str] | None:
        if len(self.names) <= _MISSING_MAX:
            return self.names
        try:
            there = self._admin.list_topics(timeout=_ASK_S).topics
        except KafkaException as error:
            log.debug("cannot look for topics that were made since: %s", error)
            return None
        missing = [name for name in self.names if name not in there and not name.startswith("^")]
        left_out = set(missing[_MISSING_MAX:])
        return [name for name in self.names if name not in left_out]
