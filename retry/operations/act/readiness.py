"""Whether actions can be asked for at all: their topics are there, and every worker reads what asks for them."""

from __future__ import annotations

from retry import format_versions
from retry.errors import ActionRefused, TopicsInvalid
from retry.kafka import authorization, consumer_groups, topics
from retry.kafka.authorization import Right
from retry.kafka.interface import AdminClient

_OLDER = (
    "{number} of {count} workers are of an earlier version, which stops where an action begins: {ids}. Upgrade all workers first"
)


def demand_readiness(admin: AdminClient, app_id: str) -> None:
    """See that nothing stands in the way of an action.

    Raises:
      TopicsInvalid: a topic is missing, with the command that creates it.
      ActionRefused: a worker is of an earlier version.
      RightMissing: this user may not know which workers there are.
    """
    own = topics.build_topic_names(app_id)
    wanted = [own.audit, own.discarded]
    present = topics.describe(admin, wanted)
    if missing := [topic for topic in wanted if topic not in present]:
        raise TopicsInvalid([f"{topic} is missing" for topic in missing], "retry topics create")
    group = own.table_group
    ids = consumer_groups.list_members(admin, group)
    if ids is None:
        raise authorization.lacking(Right(authorization.GROUP, group, authorization.DESCRIBE))
    if older := sorted(each for each in ids if not format_versions.reads_format(each, format_versions.ACTION)):
        raise ActionRefused(_OLDER.format(number=len(older), count=len(ids), ids=", ".join(dict.fromkeys(older))))
