"""A link, or a quota, that is slower than the transactions of a worker: it writes less at a time, and all goes through."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest

from retry.delay_queue import action_records, entry_keys
from retry.delay_queue.action_records import Action, Member
from retry.operations.act.request import renew_action
from retry.operations.act.start import start
from retry.operations.control_requests import ShardNumbers
from retry.settings import read_settings
from tests.conftest import Deploy
from tests.support import policies
from tests.support.letters import Sender
from tests.support.process import await_that
from tests.support.quotas import limit_producer
from tests.support.reading import Tail

pytestmark = pytest.mark.slow

LETTERS, LETTER_BYTES, QUOTA, PATIENT_S = 4_000, 3_000, 500_000, 400.0
# Two transactions of slices use up what a quota allows for twenty seconds.
MEMBERS, QUOTA_OF_ACTIONS = 20_000, 30_000


@pytest.mark.fault("a quota smaller than a transaction")
def test_letters_come_through_a_quota_that_is_used_up_long_before_a_transaction_is_whole(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, shards=2, retry_partitions=1, defaults=policies.DEFAULTS)
    (name,) = deployment.dead_letters
    limit_producer(deployment.bootstrap_servers, deployment.app_id, QUOTA)
    sender = Sender(deployment.bootstrap_servers)
    for n in range(LETTERS):
        sender.send(name, b"k%d" % n, os.urandom(LETTER_BYTES))
    sender.finish()
    worker = deployment.worker().start().await_ready()
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    said: dict[str, Any] = {}

    def is_told() -> bool:
        said.update(json.loads(worker.get("/health/ready")[1]))
        return said["ready"] and bool(said["slow"])

    await_that("health says why it is slow, and is ready", is_told)
    assert all("producer_byte_rate" in why for why in said["slow"].values())
    assert 0 < worker.metric("retry_transaction_bytes_max") < 2 * (16 << 20)
    assert said["reasons"]["slow_link"] == len(said["slow"])
    tail.await_seen(LETTERS, PATIENT_S)
    assert len(tail.records) == LETTERS
    tail.close()
    # It was no other worker's doing, and no time of a transaction ran out more often than it takes to halve what is in one.
    assert worker.log().count("letters are read again") < 20
    worker.terminate()


@pytest.mark.fault("a quota smaller than a transaction of an action's slices")
def test_an_action_of_many_letters_is_asked_for_through_such_a_quota(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, shards=2, retry_partitions=1, defaults=policies.DEFAULTS)
    deployment.prepare()
    limit_producer(deployment.bootstrap_servers, deployment.app_id, QUOTA_OF_ACTIONS)
    shards = ShardNumbers(read_settings(deployment.environ))
    now_ms, asked = shards.now_ms(), renew_action(Action("retry", "ann", 0, [], 0))
    lane, stem = entry_keys.lane("shop", *deployment.dead_letters, "orders.retry"), entry_keys.build_key_stem("orders.DLT", 0)
    draw = random.Random(4_711)
    keys = [
        sorted(entry_keys.build_key(now_ms + draw.randrange(1 << 35), stem, n, lane) for n in range(MEMBERS // shards.count))
        for _ in range(shards.count)
    ]
    action = start(shards, asked, [(Member(key, now_ms) for key in of_shard) for of_shard in keys], now_ms)
    assert action.members == MEMBERS
    records = shards.list_records(action_records.build_slices_prefix(asked.id), action_records.build_head_key(asked.id))
    heads = [of_shard.pop(action_records.build_head_key(asked.id)) for of_shard in records]
    assert heads == [action_records.encode(action)] * shards.count
    assert [len(of_shard) for of_shard in records] == action.slices
    slices = [[action_records.decode_slice(value) for value in of_shard.values()] for of_shard in records]
    assert [sorted(member.key for part in of_shard for member in part.members) for of_shard in slices] == keys
