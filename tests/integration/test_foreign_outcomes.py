"""Analytics over outcomes among which others have written whatever there is: nothing fails, and what is good is counted."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from retry.__main__ import main
from retry.kafka import topics
from retry.kafka.local_broker import LocalBroker
from retry.telemetry import outcomes
from tests.support.foreign import ForeignRecords, write_foreign
from tests.support.reading import admin
from tests.support.topics import create_all

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

pytestmark = pytest.mark.check

FOREIGN, LETTERS = 2_000, 40
DAY_MS = 1_700_000_000_000
LONG = (1 << 63) - 1


@pytest.fixture(scope="module")
def environ(
    broker: LocalBroker, spark_sessions: Callable[[], SparkSession], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Settings of commands, of a deployment whose outcomes are forty good ones among two thousand others."""
    spark_sessions()
    app_id = f"t{uuid.uuid4().hex[:8]}"
    own, dead_letters, retry = topics.build_topic_names(app_id), f"{app_id}.DLT", f"{app_id}.retry"
    create_all(admin(broker.bootstrap_servers), [NewTopic(topic, 2, 1) for topic in (own.outcomes, retry)])
    policies = tmp_path_factory.mktemp("foreign") / "policies.yaml"
    policies.write_text(f"teams: {{testers: {{topics: [{{dead_letters: {dead_letters}, retry_to: {retry}}}]}}}}\n")
    _write(broker.bootstrap_servers, own.outcomes, _good(dead_letters, retry, range(LETTERS // 2)))
    write_foreign(broker.bootstrap_servers, ForeignRecords(5, own, dead_letters), own.outcomes, FOREIGN, 2)
    _write(broker.bootstrap_servers, own.outcomes, _extreme(dead_letters, retry))
    _write(broker.bootstrap_servers, own.outcomes, _good(dead_letters, retry, range(LETTERS // 2, LETTERS)))
    return {"RETRY_BOOTSTRAP_SERVERS": broker.bootstrap_servers, "RETRY_APP_ID": app_id, "RETRY_POLICIES": str(policies),
            "DATA": str(policies.parent / "data")}  # fmt: skip


def _good(dead_letters: str, retry: str, offsets: range) -> list[bytes]:
    """Letters that failed first, of which half parked at their second failure."""
    shared = outcomes.SharedFields(
        "testers", dead_letters, 0, f"testers/{dead_letters}", 1, "E", "retry", None, retry, "E", "0" * 16, None
    )
    letters = outcomes.LettersByShared(list)
    for n in offsets:
        letters[shared].append((b"%016x" % (n + 16), n, DAY_MS, DAY_MS, DAY_MS + 10_000))
        if n % 2:
            parked = shared._replace(attempt=2, decision="park", reason="max_attempts", target=f"{dead_letters}.parked")
            letters[parked].append((b"%016x" % (n + 16), n + 1_000, DAY_MS, DAY_MS + 20_000, None))
    return list(outcomes.encode_outcomes(letters, DAY_MS + 30_000))


def _extreme(dead_letters: str, retry: str) -> list[bytes]:
    """Make records that only their numbers tell from good ones: their sums and differences are no numbers of Spark."""
    (good,) = _good(dead_letters, retry, range(1))
    made = []
    for name in ("first_failed_ms", "failed_ms", "due_ms"):
        for value in (LONG, -LONG - 1, -1):
            record = json.loads(good)
            record["letters"][0][name] = [value]
            made.append(json.dumps(record).encode())
    for name, value in (("taken_ms", LONG), ("taken_ms", -LONG - 1)):
        made.append(json.dumps({**json.loads(good), name: value}).encode())
    record = json.loads(good)
    record["letters"][0]["attempt"] = LONG
    return [*made, json.dumps(record).encode()] * 20


def _write(bootstrap_servers: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for n, value in enumerate(values):
        producer.produce(topic, value, partition=n % 2)
    assert producer.flush(60) == 0


def ask_report(environ: dict[str, str], *arguments: str) -> str:
    result = CliRunner().invoke(main, ["analytics", *arguments], env=environ)
    assert result.exit_code == 0, result.output[-3_000:]
    return result.stdout


def check_counts(told: dict[str, Any], app_id: str) -> None:
    # Some of the others are as good, but for a text that is another one.
    letters = {row["policy"]: row["letters"] for row in told["comparison"]}
    assert letters[f"testers/{app_id}.DLT"] == LETTERS, letters
    aside = {row["why"]: row["records"] for row in told["not_counted"]}
    assert aside["unreadable"] > FOREIGN / 4, aside


@pytest.mark.slow
def test_the_report_of_kafka_counts_what_is_good_and_says_how_much_is_not(environ: dict[str, str]) -> None:
    check_counts(json.loads(ask_report(environ, "report", "--json")), environ["RETRY_APP_ID"])
    page = Path(environ["DATA"]).with_suffix(".html")
    ask_report(environ, "report", "--html", str(page))
    assert "<script>alert" not in page.read_text()


def test_what_is_ingested_is_reported_and_advised_upon(environ: dict[str, str]) -> None:
    data = ("--data", environ["DATA"])
    ask_report(environ, "ingest", environ["DATA"])
    check_counts(json.loads(ask_report(environ, "report", *data, "--json")), environ["RETRY_APP_ID"])
    ask_report(environ, "advise", *data, "--file", environ["RETRY_POLICIES"])
    ask_report(environ, "what-if", environ["RETRY_POLICIES"], *data, "--file", environ["RETRY_POLICIES"])
    ask_report(environ, "compact", environ["DATA"])
