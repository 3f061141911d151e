"""What Strimzi's operators make is what the commands make: topics, and rights of a user."""

from __future__ import annotations

import re

import yaml
from click.testing import CliRunner

from retry.__main__ import main
from retry.kafka.authorization import Right
from retry.kafka.topics import TopicPlan, plan_topics
from retry.process.strimzi import build_topics, build_user

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def test_every_topic_that_the_service_makes_is_a_resource_with_the_same_settings() -> None:
    plans = plan_topics("retry", 8, ["payments.parked"])
    resources = list(build_topics(plans, "my-cluster", 3))
    assert [each["metadata"]["name"] for each in resources] == list(plans)
    for each, plan in zip(resources, plans.values(), strict=True):
        assert (each["apiVersion"], each["kind"]) == ("kafka.strimzi.io/v1", "KafkaTopic")
        assert each["metadata"]["labels"] == {"strimzi.io/cluster": "my-cluster"}
        config = {**plan.config, "min.insync.replicas": "2"}
        assert each["spec"] == {"partitions": plan.partitions, "replicas": 3, "config": config}
    assert "min.insync.replicas" not in next(build_topics(plans, "my-cluster", 1))["spec"]["config"]


def test_names_that_kubernetes_refuses_stay_the_names_of_topics() -> None:
    topics = ["Orders.Parked", "orders_parked", "orders.parked", "-x-", "a.-b"]
    resources = list(build_topics(dict.fromkeys(topics, TopicPlan(1, {})), "c", 3))
    names = [each["metadata"]["name"] for each in resources]
    assert [name for name in names if not NAME.fullmatch(name)] == []
    assert len({*names}) == len(topics)
    assert [each["spec"].get("topicName", name) for each, name in zip(resources, names, strict=True)] == topics


def test_a_user_may_do_what_the_rights_say() -> None:
    rights = [
        Right("topic", "a", "read"), Right("topic", "a", "describe-configs"), Right("topic", "a", "read"),
        Right("transactional-id", "retry-sweep-", "write", prefixed=True),
    ]  # fmt: skip
    acls = build_user("retry", rights, "c")["spec"]["authorization"]["acls"]
    assert acls == [
        {"resource": {"type": "topic", "name": "a", "patternType": "literal"}, "operations": ["DescribeConfigs", "Read"]},
        {"resource": {"type": "transactionalId", "name": "retry-sweep-", "patternType": "prefix"}, "operations": ["Write"]},
    ]


def test_commands_print_documents_that_can_be_applied() -> None:
    environment = {"RETRY_BOOTSTRAP_SERVERS": "x:9092", "RETRY_APP_ID": "pay_ments"}
    topics = CliRunner().invoke(main, ["topics", "strimzi", "c", "--copies", "1"], env=environment, catch_exceptions=False)
    made = list(yaml.safe_load_all(topics.output))
    assert {each["spec"]["topicName"] for each in made} == plan_topics("pay_ments", 8).keys()
    wanted = ["acls", "--strimzi", "c", "--principal", "User:ada"]
    user = CliRunner().invoke(main, wanted, env=environment, catch_exceptions=False)
    (made_user,) = yaml.safe_load_all(user.output)
    assert (made_user["kind"], made_user["metadata"]["name"]) == ("KafkaUser", "ada")
