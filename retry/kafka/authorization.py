"""What this user may do on the brokers, and what to say where it may not.

A refusal of what is only useful means that something is not known. A refusal of what is needed is said in one line that names
the resource, the operation, and the command that grants it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from retry.errors import RightMissing

TOPIC, GROUP, TRANSACTIONAL_ID = "topic", "group", "transactional-id"
READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS, CREATE = "read", "write", "describe", "describe-configs", "create"
_REFUSALS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: TOPIC,
    KafkaError.GROUP_AUTHORIZATION_FAILED: GROUP,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: TRANSACTIONAL_ID,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}
_ASK_S = 20.0
_UNLISTED_MAX = 200


class Right(NamedTuple):
    """One line of an access control list; `prefixed` is for all names that begin so."""

    resource: str
    name: str
    operation: str
    prefixed: bool = False

    def __str__(self) -> str:
        return f"{self.operation} {self.resource} {self.name}" + ("…" if self.prefixed else "")


def group_rights(rights: Iterable[Right]) -> dict[tuple[str, str, bool], list[str]]:
    """List the operations of each resource, name, and whether that is a prefix, in order."""
    operations: dict[tuple[str, str, bool], list[str]] = {}
    for right in sorted(set(rights)):
        operations.setdefault((right.resource, right.name, right.prefixed), []).append(right.operation)
    return operations


def build_commands(rights: Iterable[Right], principal: str, bootstrap_servers: str) -> list[str]:
    """Build the shell commands that grant some rights, one for each name; they run as the user of `admin.properties`."""
    begin = f"kafka-acls.sh --bootstrap-server {shlex.quote(bootstrap_servers)} --command-config admin.properties"
    return [
        f"{begin} --add --allow-principal {shlex.quote(principal)}"
        + "".join(f" --operation {operation}" for operation in wanted)
        + f" --{resource} {shlex.quote(name)}"
        + (" --resource-pattern-type prefixed" if prefixed else "")
        for (resource, name, prefixed), wanted in group_rights(rights).items()
    ]


def build_right_missing(*rights: Right) -> RightMissing:
    """Build the error that names the missing rights and the commands that grant them."""
    return RightMissing(", ".join(map(str, rights)), " && ".join(build_commands(rights, "User:…", "…")))


def is_denied(error: KafkaException) -> bool:
    return error.args[0].code() in _REFUSALS


def is_group_refusal(error: KafkaError) -> bool:
    """Whether a group is refused. The client asks for the coordinator of readers, too, which are in no group and need none."""
    return error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def describe_refusal(error: KafkaError, operation: str, **names: str) -> str:
    """Return the text of an error; of a refusal also the right that is missing and the command that grants it.

    `names` say what was asked about, by resource: `topic`, `group`, `transactional_id`.
    """
    resource = _REFUSALS.get(error.code(), "")
    name = names.get(resource.replace("-", "_"))
    return f"{error.str()}: {build_right_missing(Right(resource, name, operation))}" if name else str(error.str())


def list_missing_rights(admin: AdminClient, wanted: Iterable[Right]) -> list[Right]:
    """List the wanted rights to topics that this user does not have, as far as that is known.

    Nothing is known of a topic that is not there, of all that begin alike, and where nobody answers; two hundred at most are
    asked for.
    """
    rights = [right for right in wanted if right.resource == TOPIC and not right.prefixed and right.name != "*"]
    names = list(dict.fromkeys(right.name for right in rights))
    if not names:
        return []
    allowed: dict[str, set[str] | None] = dict.fromkeys(names)
    if len(names) > _UNLISTED_MAX:
        # Brokers and client need seconds for the thousands of topics of teams that nobody has made.
        try:
            listed = admin.list_topics(timeout=_ASK_S).topics
        except KafkaException:
            return []
        left_out = {*[name for name in names if name not in listed][_UNLISTED_MAX:]}
        names = [name for name in names if name not in left_out]
    asked = admin.describe_topics(TopicCollection(names), include_authorized_operations=True, request_timeout=_ASK_S)
    for name, answer in asked.items():
        try:
            operations = answer.result(_ASK_S).authorized_operations
            allowed[name] = None if operations is None else {op.name.lower().replace("_", "-") for op in operations}
        except KafkaException as error:
            allowed[name] = set() if is_denied(error) else None
        except TimeoutError:
            allowed[name] = None
    return [right for right in rights if (has := allowed[right.name]) is not None and right.operation not in has]
