"""A target for which a real broker refuses whole transactions, and nobody can tell beforehand: it is found, and the others go."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from retry.delivery.sweep import ChangelogPartition, SweepResult
from retry.errors import TransactionFailed
from retry.kafka.client_config import build_producer_config
from retry.kafka.local_broker import LocalBroker
from retry.kafka.transactional_producer import KafkaTransactionalProducer
from retry.settings import Settings
from tests.support import topics
from tests.support.bench import NOW_MS, Bench, sweep
from tests.support.reading import COMMITTED, admin, read

FORBIDDEN = "__transaction_state"
# As long as a starved core takes; a service that is in a hurry gives all of it a few seconds.
PATIENT_S = 60.0


@pytest.mark.parametrize("known", [False, True], ids=["nothing known", "others known"])
def test_a_target_that_has_transactions_refused_whole_is_found_and_the_others_go(
    broker: LocalBroker, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retry.kafka.transactional_producer._REHEARSE_S", PATIENT_S)
    monkeypatch.setattr("retry.delivery.sweep._ANCHORED_S", PATIENT_S)
    run, bench = uuid.uuid4().hex[:8], Bench()
    changelog, others = ChangelogPartition(f"{run}.changelog", 0), [f"{run}.retry-{n}" for n in range(4)]
    client = admin(broker.bootstrap_servers)
    for topic in (changelog.topic, *others):
        topics.create(client, topic, 1)
    for n, topic in enumerate([*others, FORBIDDEN]):
        bench.put(NOW_MS - n, b"%d" % n, to=topic, team=f"team-{n}")
    config = build_producer_config(Settings(bootstrap_servers=broker.bootstrap_servers, app_id=run), f"{run}-shard-0")
    config["transaction.timeout.ms"] = int(PATIENT_S * 1_000)

    def swept() -> SweepResult:
        writer = KafkaTransactionalProducer(config)
        # Nothing here is so large that it would be asked for another one.
        monkeypatch.setattr(writer, "open_compressing", lambda: writer, raising=False)
        writer.open(PATIENT_S)
        try:
            if known:
                writer.begin()
                for topic in (changelog.topic, *others):
                    writer.write(topic, 0, [{"key": b"known", "value": None}])
                assert writer.await_arrival(PATIENT_S)
                writer.abort()
                published = writer.publish

                def publish(*sent: Any) -> None:
                    # The coordinator has taken the changelog by then, however late the client gets to ask it.
                    assert writer.await_arrival(PATIENT_S)
                    published(*sent)

                monkeypatch.setattr(writer, "publish", publish)
            return sweep(bench.table, writer, changelog, bench.admission, NOW_MS, 100, 1 << 20)
        finally:
            writer.close()

    # A coordinator that refuses before it has taken a partition has nothing to undo, and the client gives up. Where it took
    # something before, the same sweep goes on: always where that was waited for, and by luck where it was not.
    try:
        first = swept()
    except TransactionFailed:
        assert not known
        first = swept()
    assert sorted(entry.destination for entry in first.sent) == others
    assert set(bench.admission.closed) == {FORBIDDEN}
    assert sorted(record.topic for record in read(broker.bootstrap_servers, others, COMMITTED)) == others
    assert bench.table.waiting == 1
