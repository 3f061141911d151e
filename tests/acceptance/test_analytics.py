"""Three teams, a worker, consumer groups whose chance to recover is known: analytics finds the truth to the last letter."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from retry.clock import wall_ms
from retry.kafka.local_broker import LocalBroker
from retry.telemetry import offset_records
from tests.support import policies
from tests.support.consumers import Group, Truth, group, letter
from tests.support.deployment import Deployment
from tests.support.events import Kind
from tests.support.ingesting import Ingesting
from tests.support.process import await_that
from tests.support.reading import COMMITTED, QUIET, Tail, read
from tests.support.report_schema import faults_of

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from retry.__main__ import main
from retry.analytics import attempts, datasets
from retry.analytics.questions.fates import list_histories

pytestmark = pytest.mark.check

LETTERS, SEED, PARTITIONS = 700, 31, 4
DELAYS_MS = (200, 400, 800, 1_600, 3_200)
KINDS = (
    Kind("payments", "com.acme.GatewayTimeout", DELAYS_MS, (0.9,), half_ms=800),
    Kind("search", "com.acme.Unavailable", DELAYS_MS, (0.8, 0.3, 0.05, 0.0)),
    Kind("billing", "com.acme.Invalid", DELAYS_MS, (0.0,)),
)
SETTLE_MS = 1_000
TRUTH = Truth(KINDS, LETTERS, SEED)


@pytest.fixture(scope="module")
def played_run(broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run, once for all that is asked of it: the folder that its events were ingested to."""
    folder = tmp_path_factory.mktemp("analytics")
    deployment = Deployment(
        broker.bootstrap_servers, folder / "deployment", dict.fromkeys([kind.team for kind in KINDS], PARTITIONS),
        retry_partitions=PARTITIONS, environ={"RETRY_POSITIONS_EVERY_S": "1"},
    )  # fmt: skip
    for file in (deployment.policy_file, folder / "policies.yaml"):
        file.write_text(_policies(deployment))
    try:
        deployment.prepare()
        deployment.worker().start().await_ready()
        _play(deployment)
    finally:
        deployment.close()
    ingesting = Ingesting(broker.bootstrap_servers, folder)
    ingesting.environ |= {"RETRY_APP_ID": deployment.app_id}
    found = ingesting.run()
    assert found["letters"] == TRUTH.retries.total() + TRUTH.parked.total()
    assert found["retries"] == TRUTH.retries.total()
    assert found["aside"] == 0
    return ingesting.data


@pytest.mark.slow
def test_what_became_of_every_retry_is_the_truth(played_run: Path, spark: SparkSession) -> None:
    found = datasets.read_parquet(spark, str(played_run))
    decisions = attempts.select_distinct_decisions(found.letters)
    made = attempts.compute_attempts(
        decisions, found.sent, found.positions, settle_ms=SETTLE_MS, until_ms=found.until_ms
    ).persist()
    counted = made.groupBy("team", "exception", "attempt", "fate").count().collect()
    recovered = Counter({tuple(row[:3]): row[4] for row in counted if row["fate"] == "recovered"})
    retries: Counter[tuple[object, ...]] = Counter()
    for row in counted:
        retries[tuple(row[:3])] += row["count"]
    assert recovered == TRUTH.recovered
    assert retries == TRUTH.retries
    assert {row["fate"] for row in counted} == {"recovered", "failed"}
    assert made.where("assumed or (passed_ms is null and fate = 'recovered')").count() == 0
    given_up = attempts.select_parked(decisions)
    parked = given_up.where("reason = 'max_attempts'").groupBy("team", "exception").count().collect()
    assert Counter({tuple(row[:2]): row[2] for row in parked}) == TRUTH.parked
    fates = list_histories(made, given_up).groupBy("fate").count().collect()
    assert Counter({row["fate"]: row["count"] for row in fates}) == {
        "recovered": TRUTH.recovered.total(), "parked": TRUTH.parked.total(),
    }  # fmt: skip
    delays = made.groupBy("attempt").agg({"delay_ms": "min"}).orderBy("attempt").collect()
    assert [row[1] for row in delays] == list(DELAYS_MS)


def test_the_curves_lie_within_their_bounds(played_run: Path, spark: SparkSession) -> None:
    report = ask_report("report", *data_options(played_run))
    assert faults_of(report) == []
    rows = {(row["team"], row["attempt"]): row for row in report["incidence_by_attempt"]}
    for kind in KINDS:
        left = 1.0
        for attempt, delay_ms in enumerate(DELAYS_MS, 1):
            if TRUTH.retries[kind.team, kind.exception, attempt]:
                row, left = rows[kind.team, attempt], left * (1 - kind.recovers(attempt, delay_ms))
                low, high = row["part_recovered_low"], row["part_recovered_high"]
                assert low <= 1 - left <= high, (kind.team, attempt, row)


def test_some_minutes_are_no_history_to_give_up_attempts_by(played_run: Path, spark: SparkSession) -> None:
    of_now = (*data_options(played_run), "--file", str(played_run.parent / "policies.yaml"))
    found = {(row["team"], row["exception"]): row for row in ask_report("advise", *of_now)["advice"]}
    assert found.keys() == {(kind.team, kind.exception) for kind in KINDS}
    assert {row["attempts"] for row in found.values()} == {len(DELAYS_MS)}
    never = found["billing", "com.acme.Invalid"]
    assert (never["verdict"], never["reason"]) == ("unknown", "only 1 outage was seen, and 30 are needed")
    assert never["base"].startswith("1 outage seen, the longest ")


def test_fewer_attempts_make_fewer_retries_of_the_same_failures(played_run: Path, spark: SparkSession) -> None:
    of_now, tried_file, least = (
        (*data_options(played_run), "--file", str(played_run.parent / "policies.yaml")),
        played_run.parent / "tried.yaml",
        2,
    )
    text = Path(of_now[-1]).read_text()
    tried_file.write_text(text.replace(f"max_attempts: {len(DELAYS_MS)}", f"max_attempts: {least}"))
    assert tried_file.read_text() != text
    assert CliRunner().invoke(main, ["policies", "check", str(tried_file)]).stdout.endswith(": OK\n")
    recovered = sum(n for (*_, attempt), n in TRUTH.recovered.items() if attempt <= least)
    tried = ask_report("what-if", str(tried_file), *of_now)
    assert tried["now"]["letters"] == len(KINDS) * LETTERS
    assert tried["tried"]["retries"] < tried["now"]["retries"]
    # On a starved machine retries come far later than their policies say, and nobody has seen what those delays would do.
    for told, truth in ((tried["now"], TRUTH.recovered.total()), (tried["tried"], recovered)):
        assert told["recovered_low"] <= truth <= told["recovered_high"], told


def data_options(played: Path) -> tuple[str, ...]:
    return "--data", str(played), "--settle", f"{SETTLE_MS}ms"


def ask_report(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["analytics", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def _policies(deployment: Deployment) -> str:
    delays = ", ".join(f"{delay_ms}ms" for delay_ms in DELAYS_MS)
    defaults = f"{{backoff: {{kind: steps, delays: [{delays}]}}, jitter: none, max_attempts: {len(DELAYS_MS)}}}"
    teams = {
        kind.team: policies.team(
            policies.topic(deployment, f"{deployment.app_id}.{kind.team}.DLT"), keys=f"group: {group(kind, deployment.app_id)}"
        )
        for kind in KINDS
    }
    return policies.text(teams, defaults)


def _play(deployment: Deployment) -> None:
    """Letters, and consumers that fail again or recover as the draw says; to the end of all."""
    servers, prefix = deployment.bootstrap_servers, deployment.app_id
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "logger": QUIET})
    groups = {kind.team: Group(servers, kind, prefix, SEED) for kind in KINDS}
    for kind in KINDS:
        for n in range(LETTERS):
            value, headers = letter(kind, n, prefix)
            producer.produce(f"{prefix}.{kind.team}.DLT", value, f"key {n}", headers=headers)
    assert producer.flush(20) == 0
    parked = Tail(servers, [deployment.parked, deployment.names.parked])
    parked.await_seen(TRUTH.parked.total(), 240)
    parked.close()

    def has_recovered() -> bool:
        done = {(kind.team, kind.exception, n): count for kind in KINDS for n, count in dict(groups[kind.team].done).items()}
        return done == TRUTH.recovered

    await_that("all others recovered", has_recovered)
    for each in groups.values():
        each.close()
    retries = read(servers, deployment.retry_topics(), COMMITTED)
    ends = Counter[tuple[object, object]]()
    for record in retries:
        ends[record.topic, record.partition] = max(ends[record.topic, record.partition], record.offset + 1)
    # A position may lie behind the mark of a transaction, which is no retry.
    await_that(
        "the last commits were sampled", lambda: all(read_samples(deployment)[place] >= end for place, end in ends.items())
    )
    last_ms = wall_ms()
    await_that("the last has settled", lambda: wall_ms() > last_ms + SETTLE_MS)


def read_samples(deployment: Deployment) -> Counter[tuple[object, object]]:
    """Read the newest samples of each partition of the retry topics."""
    found = Counter[tuple[object, object]]()
    for record in read(deployment.bootstrap_servers, [deployment.names.outcomes], COMMITTED):
        if record.key == offset_records.KEY:
            sample = offset_records.read(record.value or b"")
            found[sample.topic, sample.partition] = max(found[sample.topic, sample.partition], sample.offset)
    return found
