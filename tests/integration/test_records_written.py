"""Single records on real brokers: one of a group is refused, the broker is away, and a missing right ends the producer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from retry.errors import RecordUnwritten
from retry.kafka import client_config
from retry.kafka.local_broker import LocalBroker
from retry.kafka.record_producer import Records
from retry.settings import Settings
from tests.support.process import await_that
from tests.support.reading import QUIET, admin
from tests.support.secured import Right, SecuredBroker
from tests.support.topics import create

TOPIC, TOPIC_BYTES_MAX = "records-written.changelog", 2_000


def config(bootstrap_servers: str, **properties: object) -> dict[str, object]:
    settings = Settings(bootstrap_servers=bootstrap_servers, app_id="records-written")
    return {**client_config.build_records_config(settings, TOPIC_BYTES_MAX), "logger": QUIET, **properties}


def write_records(records: Records, values: Sequence[bytes]) -> list[int | BaseException]:
    """Write records at one time and return what was told of each."""

    async def run() -> list[int | BaseException]:
        told = (records.write_record(TOPIC, 0, b"%d" % n, value) for n, value in enumerate(values))
        return await asyncio.gather(*told, return_exceptions=True)

    return asyncio.run(run())


def test_the_broker_refuses_one_record_of_a_group_and_the_others_are_acknowledged(broker: LocalBroker) -> None:
    create(admin(broker.bootstrap_servers), TOPIC, 1, {"max.message.bytes": str(TOPIC_BYTES_MAX)})
    records = Records(config(broker.bootstrap_servers, **{"compression.type": "none"}))
    try:
        # A batch that is too large is refused whole: what shares one must fit into it.
        told = write_records(records, [b"v" * 900] * 5 + [b"v" * 3_000] + [b"v" * 900] * 5)
        assert [type(each) for each in told] == [int] * 5 + [RecordUnwritten] + [int] * 5
        assert all(isinstance(each, int) for each in write_records(records, [b"v"] * 50))
    finally:
        records.close()


@pytest.mark.check
def test_while_the_broker_is_away_each_request_fails_and_later_ones_are_written(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "broker") as away:
        create(admin(away.bootstrap_servers), TOPIC, 1)
        records = Records(config(away.bootstrap_servers, **{"delivery.timeout.ms": 1_000}))
        try:
            # A broker that has just begun, on a busy machine, may take longer than that second.
            await_that("records are written", lambda: [type(each) for each in write_records(records, [b"v"] * 3)] == [int] * 3)
            away.kill()
            assert [type(each) for each in write_records(records, [b"v"] * 3)] == [RecordUnwritten] * 3
            away.start()
            await_that("records are written again", lambda: [type(each) for each in write_records(records, [b"v"])] == [int])
        finally:
            records.close()


@pytest.mark.check
def test_a_producer_that_the_brokers_end_for_good_fails_its_requests_and_another_writes_those_that_follow(
    secured: SecuredBroker,
) -> None:
    create(secured.admin, TOPIC, 1)
    secured.add_user("maker", "maker's own")
    right = Right("User:maker", "topic", TOPIC, "write")
    records = Records(config(secured.bootstrap_servers, **secured.client("maker", "maker's own")))
    try:
        # Without a right to write anywhere there is no id for an idempotent producer, which is an error for good.
        (told,) = write_records(records, [b"v"])
        assert isinstance(told, RecordUnwritten)
        secured.grant([right])
        await_that("another writes", lambda: isinstance(write_records(records, [b"v"])[0], int))
    finally:
        records.close()
        secured.withdraw([right])
