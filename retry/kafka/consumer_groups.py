"""Asks brokers what offsets consumer groups have committed, and how many members they have."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from retry.clock import Deadline, pause
from retry.kafka import authorization
from retry.kafka.asked_again import GROUP_EXPIRES_S, ask_until_answered
from retry.kafka.authorization import Right
from retry.kafka.interface import Partition

_ASK_S, _AGAIN_S = 20.0, 0.1


def read_positions(admin: AdminClient, group: str) -> dict[Partition, int]:
    """Return the offset at which a group goes on reading in each partition; empty where there is no such group."""

    def query_offsets(within_s: float) -> dict[Partition, int]:
        return _offsets(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(within_s))

    try:
        return ask_until_answered(query_offsets, _ASK_S)
    except KafkaException as error:
        if error.args[0].code() == error.args[0].GROUP_ID_NOT_FOUND:
            return {}
        if authorization.is_denied(error):
            raise authorization.build_right_missing(Right(authorization.GROUP, group, authorization.DESCRIBE)) from error
        raise


def list_groups(admin: AdminClient) -> list[str]:
    def query_groups(within_s: float) -> list[str]:
        answer = admin.list_consumer_groups(request_timeout=within_s).result(within_s)
        return sorted(group.group_id for group in answer.valid)

    return ask_until_answered(query_groups, _ASK_S)


class Committed:
    """Asks many groups again and again. A question that is not answered in time is left to run, and none is asked beside it."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._pending: dict[str, Future[ConsumerGroupTopicPartitions]] = {}

    def __call__(self, groups: Iterable[str], wait_s: float) -> tuple[dict[str, dict[Partition, int]], dict[str, str]]:
        """Return what each group has committed, nothing where there is no such group, and by group why some gave no answer."""
        groups, deadline = list(groups), Deadline(wait_s)
        committed: dict[str, dict[Partition, int]] = {}
        failed: dict[str, str] = {}
        while groups:
            self._pending = {group: self._pending.get(group) or self._query_offsets(group) for group in groups}
            # A coordinator that moves is found by asking again.
            groups = [group for group in groups if self._is_moving(group, deadline, committed, failed)]
            if deadline.has_passed():
                break
            pause(_AGAIN_S if groups else 0.0)
        return committed, failed

    def _is_moving(
        self, group: str, deadline: Deadline, committed: dict[str, dict[Partition, int]], failed: dict[str, str]
    ) -> bool:
        """Take the answer about a group, or why there is none; whether its coordinator is to be found anew."""
        try:
            committed[group] = _offsets(self._pending[group].result(deadline.remaining_s()))
        except TimeoutError:
            failed[group] = "no answer in time"
            return False
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.GROUP_ID_NOT_FOUND:
                committed[group] = {}
            else:
                failed[group] = authorization.describe_refusal(error.args[0], authorization.DESCRIBE, group=group)
            del self._pending[group]
            return bool(code == KafkaError.NOT_COORDINATOR)
        del self._pending[group]
        failed.pop(group, None)
        return False

    def _query_offsets(self, group: str) -> Future[ConsumerGroupTopicPartitions]:
        answers: dict[str, Future[ConsumerGroupTopicPartitions]]
        answers = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        return answers[group]


def _offsets(answer: ConsumerGroupTopicPartitions) -> dict[Partition, int]:
    return {(p.topic, p.partition): p.offset for p in answer.topic_partitions or () if p.offset >= 0}


def count_members(admin: AdminClient, group: str) -> int | None:
    """Count the members of a consumer group; 0 where there is no such group, None where this user may not know."""
    ids = list_members(admin, group)
    return None if ids is None else len(ids)


def list_members(admin: AdminClient, group: str) -> list[str] | None:
    """List the members of a group by instance id, or by member id where they have none; None where this user may not know."""

    def query_members(within_s: float) -> list[str]:
        described = admin.describe_consumer_groups([group], request_timeout=GROUP_EXPIRES_S)[group].result(within_s)
        return [member.group_instance_id or member.member_id for member in described.members]

    try:
        return ask_until_answered(query_members, _ASK_S)
    except KafkaException as error:
        if authorization.is_denied(error):
            return None
        raise
