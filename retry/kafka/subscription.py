"""What a member of a group reads: of very many names those of topics that there are, and partitions that nobody owns yet.

librdkafka (2.16) compares every name with every topic, each time that it hears of any. Fourteen thousand names without topics
keep its main thread so busy that it misses heartbeats, and the group throws the member out again and again.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from retry import clock
from retry.kafka import client_config
from retry.kafka.asked_again import GROUP_EXPIRES_S
from retry.kafka.client_config import Config
from retry.kafka.closing import close_consumer
from retry.kafka.interface import Partition

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


# Finds partitions that nobody in a group owns, and makes the group share them out again.
#
# With cooperative rebalancing a partition changes hands in two steps: its owner lets go in the first, another takes it in the
# second, which the former owner asks for. A static member that dies between the two comes back with nothing to let go of, is
# given what the first step left it, and asks for nothing. The group is stable, and the partition is nobody's for good. A member
# that joins for a moment makes the group start over.

_LOOK_EVERY_S = 4.0
# As often as this in a row, since a topic that was just made is nobody's for a moment.
_LOOKS = 3
_DESCRIBE_S = 5.0
_JOIN_S = 15.0


class UnassignedPartitions:
    """Looks after one group; each member does, and the first by name acts.

    What the members subscribe to are topics, and patterns that begin with `^`.
    """

    def __init__(self, admin: AdminClient, config: Config, subscription: Sequence[str]) -> None:
        self._admin, self._config = admin, config
        self.watch(subscription)

    def watch(self, subscription: Sequence[str]) -> None:
        self._topics = {s for s in subscription if not s.startswith("^")}
        self._patterns = [re.compile(s) for s in subscription if s.startswith("^")]
        self._seen: dict[Partition, int] = {}
        self._there: list[str] = []
        self._asking = clock.Interval(_LOOK_EVERY_S)

    def check_owners(self) -> None:
        """Ask every few seconds; whatever is found too often in a row has the group share out anew."""
        if not self._asking.is_due():
            return
        try:
            orphans = self._find()
        except (KafkaException, TimeoutError) as error:
            log.debug("cannot look for partitions without an owner: %s", error)
            return
        self._seen = {partition: self._seen.get(partition, 0) + 1 for partition in orphans}
        if max(self._seen.values(), default=0) >= _LOOKS:
            log.warning("nobody in %s owns %s: sharing out anew", self._config["group.id"], sorted(orphans)[:5])
            self._seen = {}
            threading.Thread(target=self._nudge, name="nudge", daemon=True).start()

    def _find(self) -> set[Partition]:
        group = self._config["group.id"]
        # First, since it fails at once where nobody answers.
        wanted = self._list_wanted()
        about = self._admin.describe_consumer_groups([group], request_timeout=GROUP_EXPIRES_S)[group].result(_DESCRIBE_S)
        names = [m.group_instance_id or m.member_id for m in about.members]
        if about.state != ConsumerGroupState.STABLE or min(names, default="") != self._config["group.instance.id"]:
            return set()
        owned = {(p.topic, p.partition) for m in about.members for p in m.assignment.topic_partitions}
        return wanted - owned

    def _list_wanted(self) -> set[Partition]:
        topics = self._admin.list_topics(timeout=_DESCRIBE_S).topics
        self._there = read = [t for t in topics if t in self._topics or any(p.match(t) for p in self._patterns)]
        return {(topic, partition) for topic in read for partition in topics[topic].partitions}

    def _nudge(self) -> None:
        """Join without a name and leave at once: both make the group share out everything."""
        config = {name: value for name, value in self._config.items() if name != "group.instance.id"}
        guest = client_config.make_consumer(config)
        guest.subscribe(self._there)
        deadline = clock.Deadline(_JOIN_S)
        while not guest.memberid() and not deadline.has_passed():
            guest.poll(0.1)
        close_consumer(guest)
