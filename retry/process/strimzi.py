"""Topics and users of the service as resources of Strimzi's operators, in place of what commands make on the brokers.

The form is `kafka.strimzi.io/v1`, which Strimzi has from 0.49 on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from retry.kafka.authorization import GROUP, TOPIC, TRANSACTIONAL_ID, Right, group_rights
from retry.kafka.topics import TopicPlan

_VERSION = "kafka.strimzi.io/v1"
_TYPES = {TOPIC: "topic", GROUP: "group", TRANSACTIONAL_ID: "transactionalId"}
# As Kubernetes has it for names of resources (RFC 1123): labels with dots between.
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


def build_topics(plans: Mapping[str, TopicPlan], cluster: str, copies: int) -> Iterator[dict[str, Any]]:
    """Build a KafkaTopic for each topic; with three copies or more, writes need two of them."""
    safe = {"min.insync.replicas": "2"} if copies > 2 else {}
    for topic, plan in plans.items():
        name = _name_resource(topic)
        spec = {"partitions": plan.partitions, "replicas": copies, "config": {**plan.config, **safe}}
        yield _build_resource("KafkaTopic", name, cluster, spec if name == topic else {"topicName": topic, **spec})


def build_user(name: str, rights: Iterable[Right], cluster: str) -> dict[str, Any]:
    """Build a KafkaUser with a password (SCRAM-SHA-512), which may do what `rights` say and nothing else."""
    acls = [
        {
            "resource": {"type": _TYPES[resource], "name": of, "patternType": "prefix" if prefixed else "literal"},
            # As `DescribeConfigs` for describe-configs.
            "operations": ["".join(map(str.capitalize, operation.split("-"))) for operation in operations],
        }
        for (resource, of, prefixed), operations in group_rights(rights).items()
    ]  # fmt: skip
    spec = {"authentication": {"type": "scram-sha-512"}, "authorization": {"type": "simple", "acls": acls}}
    return _build_resource("KafkaUser", _name_resource(name), cluster, spec)


def _build_resource(kind: str, name: str, cluster: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": _VERSION, "kind": kind, "metadata": {"name": name, "labels": {"strimzi.io/cluster": cluster}},
        "spec": dict(spec),
    }  # fmt: skip


def _name_resource(name: str) -> str:
    """Return a name that Kubernetes takes; one that it does not take gets a fingerprint, so that two names stay two."""
    if _NAME.fullmatch(name):
        return name
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{_NOT_IN_NAMES.sub('-', name.lower())[:200].strip('-')}-{mark}".lstrip("-")
