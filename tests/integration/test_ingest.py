"""What is made of Kafka's records: on literal frames, and from a real broker to Parquet."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Producer

from retry.errors import RetryError
from retry.telemetry import outcomes
from retry.telemetry.outcomes import SharedFields
from tests.support import attempts as model
from tests.support.events import SETTLE_MS, Kind, Row, events, produce, rows, value
from tests.support.ingesting import Ingesting, files
from tests.support.outcome_records import tell_of
from tests.support.process import ROOT, await_that

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from retry.analytics import attempts, datasets, decode, ingest, schemas, spark_kafka_options
from retry.analytics.ingest import Ingest
from retry.analytics.schemas import ATTEMPT, LETTER, OUTCOME
from retry.jars import fetch_jars

pytestmark = pytest.mark.check

PASSWORD = "correct-horse-7"
EVENTS = events(6, seed=2)
ROW = value(EVENTS.letters[0])
TOLD = tell_of(ROW)
SAMPLE = value(EVENTS.positions[0])


def test_a_letter_is_a_row_whatever_fields_are_new_but_not_of_a_newer_version(spark: SparkSession) -> None:
    records = _records(spark, ("k", TOLD), ("k", {**TOLD, "new": 1}), ("position", SAMPLE), ("k", {**TOLD, "v": 2}))
    first, second = decode.decode_letters(records).orderBy("kafka_offset").collect()
    assert decode.decode_letters(records).columns == LETTER.names
    assert first.asDict() == {**ROW, "kafka_topic": "app-outcomes", "kafka_partition": 0, "kafka_offset": 0}
    assert {name: second[name] for name in ROW} == ROW


def test_letters_that_are_told_of_together_are_a_row_each(spark: SparkSession) -> None:
    (first, second) = told = make_outcome_records()
    records = _records(spark, (None, first), ("k", TOLD), (None, second))
    found = [row.asDict() for row in decode.decode_letters(records).orderBy("kafka_offset", "topic", "source").collect()]
    places = [0] * 3 + [1] + [2] * 2
    expected = [*outcomes.read(first), ROW, *outcomes.read(second)]
    assert [row.pop("kafka_offset") for row in found] == places
    assert [{name: row[name] for name in OUTCOME.names} for row in found] == expected
    assert decode.select_unreadable(records, "app-outcomes").count() == 0
    assert len(told) == 2


def test_what_an_action_has_decided_is_read_with_the_action(spark: SparkSession) -> None:
    shared = SharedFields("shop", "orders.DLT", 3, "shop/orders", 1, None, "retry", None, "slow.retry", None, None, None)
    by = outcomes.ActionOutcome("0a0b", "redirect")
    decided = [(shared, 90), *((shared._replace(decision=each), None) for each in ("park", "discard", "erase")),
               (shared._replace(decision="return", attempt=4), 95)]  # fmt: skip
    letters = defaultdict(list, {alike: [(b"ff", n, 5, 7, due_ms)] for n, (alike, due_ms) in enumerate(decided)})
    (value,) = outcomes.encode_outcomes(letters, 1_500, by)
    found = [row.asDict() for row in decode.decode_letters(_records(spark, ("0a0b", value))).orderBy("source").collect()]
    assert [{name: row[name] for name in OUTCOME.names} for row in found] == outcomes.read(value)
    # One that is to be sent is due at some time.
    (undue,) = outcomes.encode_outcomes(defaultdict(list, {shared: [(b"ff", 1, 5, 7, None)]}), 1_500, by)
    assert [row["why"] for row in decode.select_unreadable(_records(spark, (None, undue)), "app-outcomes").collect()] == [
        "unreadable"
    ]


def test_a_record_of_many_letters_of_which_one_cannot_be_read_is_put_aside_whole(spark: SparkSession) -> None:
    record = orjson.loads(make_outcome_records()[0])
    alike = record["letters"][0]
    wrong: list[object] = [
        {**record, "letters": None}, {**record, "letters": 3}, {**record, "taken_ms": None},
        *({**record, "letters": [each]} for each in (
            {**alike, "team": None}, {**alike, "offset": [1]}, {**alike, "due_ms": [None, 1]}, {**alike, "id": None},
            {**alike, "failed_ms": [*alike["failed_ms"], 1]}, {**alike, "decision": "forget"}, 7,
        )),
        {**record, "letters": [*record["letters"], {}]},
    ]  # fmt: skip
    records = _records(spark, *((None, each) for each in wrong))
    found = decode.select_unreadable(records, "app-outcomes").orderBy("kafka_offset").collect()
    assert [(row["kafka_offset"], row["why"]) for row in found] == [(n, "unreadable") for n in range(len(wrong))]
    assert decode.decode_letters(records).count() == 0


def make_outcome_records() -> list[bytes]:
    """Records of five letters, as the service writes them: two batches, of which the first has a letter that was parked."""
    retried = SharedFields("shop", "orders.DLT", 3, "shop/orders", 1, "E", "retry", None, "orders.retry", None, "0" * 16, "g")
    parked = retried._replace(topic="others.DLT", attempt=4, decision="park", reason="max_attempts", exception=None)
    rows: list[outcomes.LetterRows] = [[(b"%02x" % n, n, 5, 7, 90 + n) for n in range(2)], [(b"ff", 9, 1, 2, None)]]
    batches = [{retried: rows[0], parked: rows[1]}, {retried: rows[0]}]
    return [value for batch in batches for value in outcomes.encode_outcomes(defaultdict(list, batch), 1_500)]


def test_positions_are_told_from_letters_by_their_key(spark: SparkSession) -> None:
    records = _records(spark, ("k", TOLD), ("position", SAMPLE), ("position", TOLD), (None, TOLD))
    (found,) = decode.select_positions(records).collect()
    assert {name: found[name] for name in SAMPLE} == SAMPLE
    assert [row["kafka_offset"] for row in decode.decode_letters(records).orderBy("kafka_offset").collect()] == [0, 3]


def test_what_cannot_be_read_is_put_aside_with_the_reason(spark: SparkSession) -> None:
    wrong: list[tuple[str | None, object]] = [
        ("k", b"{"), ("k", b""), ("k", None), (None, b"\xff\xfe"), ("k", b"[1]"), ("k", tell_of({**ROW, "attempt": "one"})),
        ("k", {"v": 1, "id": "half"}), ("k", tell_of({**ROW, "due_ms": None})),
        ("k", tell_of({**ROW, "decision": "forget"})), ("k", {**TOLD, "v": 2}), ("k", {"v": 6}), ("position", b"{"),
        ("position", {**SAMPLE, "offset": None}), ("position", {**SAMPLE, "v": 9}),
    ]  # fmt: skip
    records = _records(spark, ("k", TOLD), *wrong, ("position", SAMPLE))
    found = decode.select_unreadable(records, "app-outcomes").orderBy("kafka_offset").collect()
    assert [row["kafka_offset"] for row in found] == list(range(1, len(wrong) + 1))
    newer = {10: "version 2", 11: "version 6", 14: "version 9"}
    assert {row["kafka_offset"]: row["why"] for row in found if row["why"] != "unreadable"} == newer
    assert (bytes(found[3]["value"]), found[3]["key"]) == (b"\xff\xfe", None)
    assert decode.decode_letters(records).count() + decode.select_positions(records).count() + len(found) == records.count()


def test_a_retry_is_read_from_its_headers_and_others_are_left_alone(spark: SparkSession) -> None:
    ours = [("retry-id", b"old"), ("retry-id", b"a"), ("retry-attempt", b"2"), ("retry-policy", b"shop/orders#1")]
    records = _retries(spark, [*ours, ("retry-due-ms", b"1000")], [*ours, ("note", None)], [("retry-id", b"a")], [], None)
    first, second = decode.select_sent(records).orderBy("offset").collect()
    size = len(b"key" + b"order") + sum(len(name) + len(text) for name, text in ours)
    assert first.asDict() == {
        "topic": "orders.retry", "partition": 3, "offset": 0, "id": "a", "attempt": 2, "due_ms": 1_000, "sent_ms": 1_500,
        "timestamp_ms": 1_500, "bytes": size + len("retry-due-ms1000"), "team": "shop",
    }  # fmt: skip
    assert (second["due_ms"], second["bytes"]) == (None, size + len("note"))
    (wrong,) = decode.select_unreadable(records, "app-outcomes").collect()
    assert (wrong["kafka_offset"], wrong["why"]) == (2, "retry-attempt is no number")


def test_a_day_begins_at_midnight_in_greenwich(spark: SparkSession) -> None:
    moments = [(0,), (86_399_999,), (86_400_000,), (-1,), (1 << 62,)]
    days = spark.createDataFrame(moments, "ms long").select(decode.find_day("ms").cast("string")).collect()
    assert [row[0] for row in days] == ["1970-01-01", "1970-01-01", "1970-01-02", "1970-01-01", "9999-12-31"]


@pytest.mark.slow
def test_each_pass_adds_what_is_new_and_topics_that_were_not_there(ingesting: Ingesting, spark: SparkSession) -> None:
    own = f"{ingesting.app_id}."
    first = events(30, seed=1, prefix=own)
    later = events(12, seed=5, kinds=[Kind("7", "E", (1_000, 1_000), (0.5,))], prefix=own)
    job, nothing = _ingest(ingesting, spark), {"letters": 0, "retries": 0, "positions": 0, "aside": 0}
    assert job.run() == nothing
    ingesting.create(ingesting.outcomes)
    ingesting.create(*{retry["topic"] for retry in first.sent})
    produce(ingesting.producer, ingesting.outcomes, first)
    wanted = {"letters": len(first.letters), "retries": len(first.sent), "positions": len(first.positions), "aside": 0}
    assert job.run() == wanted
    assert job.run() == nothing
    # As if the last pass that wrote letters had been killed before it noted where their retries went, and which groups there are.
    schemas.write_horizon(spark, str(ingesting.data), schemas.Horizon(1, -1, -1, [], {}))
    ingesting.create(f"{own}7.retry")
    produce(ingesting.producer, ingesting.outcomes, later)
    twice = first.letters[0]
    _produce(ingesting, ("k", tell_of(twice)), ("k", b"not json"))
    assert job.run() == {
        "letters": len(later.letters) + 1, "retries": len(later.sent), "positions": len(later.positions), "aside": 1,
    }  # fmt: skip
    noted, samples = schemas.read_horizon(spark, str(ingesting.data)), (*first.positions, *later.positions)
    assert noted.targets == sorted({retry["topic"] for retry in (*first.sent, *later.sent)})
    days: dict[schemas.Watched, date] = {}
    for each in samples:
        watched = schemas.Watched(each["group"], each["topic"])
        days[watched] = min(_day(each["at_ms"]), days.get(watched, date.max))
    assert noted.watched == days
    assert (noted.letters_batch, noted.positions_batch) == (1, 1)
    found = datasets.read_parquet(spark, str(ingesting.data))
    whole = [list(getattr(first, name)) + list(getattr(later, name)) for name in ("letters", "sent", "positions")]
    told = model.attempts(*whole, settle_ms=SETTLE_MS, until_ms=later.until_ms)
    decisions = attempts.select_distinct_decisions(found.letters)
    asked = attempts.compute_attempts(decisions, found.sent, found.positions, until_ms=later.until_ms)
    names = [name for name in ATTEMPT.names if name not in ("sent_ms", "bytes", "ended_ms")]
    assert sorted(map(tuple, asked.select(*names).collect()), key=repr) == sorted(rows(told, names), key=repr)
    assert {folder.name for folder in (ingesting.data / "letters").glob("day=2026-06-01/*")} >= {"team=billing"}
    there = datasets.read_kafka(spark, spark_kafka_options.build_options(ingesting.servers, {}), ingesting.outcomes)
    assert [frame.count() for frame in there[:3]] == [frame.count() for frame in found[:3]]
    assert there.watched == found.watched == noted.watched
    of_day = found.letters.where(decode.find_day("taken_ms") == "2026-06-01").count()
    shutil.rmtree(ingesting.data / "letters" / "day=2026-06-01")
    assert job.run() == nothing
    assert datasets.read_set(spark, str(ingesting.data), datasets.LETTERS).count() == len(whole[0]) + 1 - of_day


def _day(moment_ms: int) -> date:
    return datetime.fromtimestamp(moment_ms / 1_000, UTC).date()


# What no folder could be named after, what Spark would take for something else, and what some file systems take for the same.
TEAMS = (
    "x" * (1 << 20), "日" * 100, "a" * 63, "a" * 64, ".", "..", "/", "a/b", "%", "a%2Fb", "a=b", "team=7", 'a"b', "a\\b", "", " ",
    "billing", "Billing", "BILLING", "billing\n", "billing.", "billing ", "é", "e\u0301", "\x00\x1b[31m\n\u202e",
    "007", "7", "2026-01-01", "1e5", "NaN", "null", "_temporary", "__HIVE_DEFAULT_PARTITION__",
)  # fmt: skip


def test_whatever_a_team_is_called_its_letters_and_retries_are_ingested_and_it_is_called_so_afterwards(
    ingesting: Ingesting, spark: SparkSession
) -> None:
    retried, large = f"{ingesting.app_id}.retry", {"max.message.bytes": "4194304"}
    ingesting.create(ingesting.outcomes, retried, config=large)
    _send_of_teams(ingesting, TEAMS, retried)
    wanted = {"letters": len(TEAMS), "retries": len(TEAMS), "positions": 0, "aside": 0}
    assert _ingest(ingesting, spark, [retried]).run() == wanted
    found = datasets.read_parquet(spark, str(ingesting.data))
    assert sorted(row["team"] for row in found.letters.select("team").collect()) == sorted(TEAMS)
    # A policy is named team/topic.
    of_policies = [team.partition("/")[0] for team in TEAMS]
    assert sorted(row["team"] for row in found.sent.select("team").collect()) == sorted(of_policies)
    for name, teams in (("letters", TEAMS), ("retries", of_policies)):
        folders = [folder.name for folder in (ingesting.data / name).glob("day=*/*")]
        assert len({folder.casefold() for folder in folders}) == len(folders) == len(set(teams))
        assert all(re.fullmatch("team=[a-z0-9_-]{1,100}", folder) for folder in folders)
        assert {"team=billing", f"team={'a' * 63}"} <= set(folders)
        # Whoever reads the set with a tool of their own has the team in a column, and no folder is a number, a date or nothing.
        read = spark.read.parquet(str(ingesting.data / name))
        assert (read.schema["team"].dataType.typeName(), read.where("team is null").count()) == ("string", 0)
        assert sorted(row["team_name"] for row in read.collect()) == sorted(teams)


def test_no_file_has_more_rows_than_are_allowed(
    ingesting: Ingesting, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "ROWS_A_FILE", 2)
    retried = f"{ingesting.app_id}.retry"
    ingesting.create(ingesting.outcomes, retried)
    _send_of_teams(ingesting, ["a"] * 5, retried)
    assert _ingest(ingesting, spark, [retried]).run()["letters"] == 5
    rows = [spark.read.parquet(str(file)).count() for file in (ingesting.data / "letters").rglob("*.parquet")]
    assert sorted(rows) == [1, 2, 2]


def test_what_was_undone_is_not_there_and_the_end_of_observation_is_that_of_the_pass(
    ingesting: Ingesting, spark: SparkSession
) -> None:
    ingesting.create(ingesting.outcomes)
    producer = Producer({"bootstrap.servers": ingesting.servers, "transactional.id": ingesting.app_id})
    producer.init_transactions(20)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce(ingesting.outcomes, orjson.dumps(TOLD))
        producer.flush(20)
        end(20)
    job = _ingest(ingesting, spark, ["nothing.retry"])
    # A commit is answered before its marker is in the partition.
    await_that("what was committed is there, alone", lambda: job.run()["letters"] == 1)
    found = datasets.read_parquet(spark, str(ingesting.data))
    decisions = attempts.select_distinct_decisions(found.letters)
    (fate,) = attempts.compute_attempts(decisions, found.sent, found.positions, until_ms=found.until_ms).collect()
    assert (fate["fate"], fate["ended_ms"], found.until_ms > TOLD["taken_ms"]) == ("waiting", found.until_ms, True)


def test_nothing_ingested_and_no_broker_are_said_in_a_line(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(RetryError, match="run `retry analytics ingest"):
        datasets.read_parquet(spark, str(tmp_path))
    soon = {"kafka.default.api.timeout.ms": "2000", "kafka.request.timeout.ms": "1000"}
    with pytest.raises(RetryError, match="cannot be ingested") as error:
        Ingest(spark, spark_kafka_options.build_options("127.0.0.1:1", {}) | soon, "app-outcomes", str(tmp_path)).run()
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_submitted_to_a_cluster_it_says_no_secret_to_logs_plans_or_checkpoint(ingesting: Ingesting) -> None:
    """A cluster of one worker in processes of their own, which Spark starts for the test; logs are those of a cluster."""
    ingesting.create(ingesting.outcomes)
    made = events(6, seed=2, prefix=f"{ingesting.app_id}.")
    ingesting.create(*{retry["topic"] for retry in made.sent})
    produce(ingesting.producer, ingesting.outcomes, made)
    logged = ingesting.folder / "events"
    logged.mkdir()
    done = subprocess.run(
        [
            str(_spark_home() / "bin" / "spark-submit"), "--master", "local-cluster[1,1,1024]",
            "--jars", ",".join(map(str, fetch_jars("spark"))), "--conf", "spark.eventLog.enabled=true",
            "--conf", "spark.eventLog.compress=false",
            "--conf", f"spark.eventLog.dir={logged.as_uri()}", "--conf", "spark.driver.host=127.0.0.1",
            str(ROOT / "examples" / "spark_job.py"), "analytics", "ingest", ingesting.data.as_uri(),
        ],
        cwd=ingesting.folder, env={
            **ingesting.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "RETRY_KAFKA_SASL_MECHANISM": "PLAIN",
            "RETRY_KAFKA_SASL_USERNAME": "me", "RETRY_KAFKA_SASL_PASSWORD": PASSWORD,
        }, capture_output=True, text=True, timeout=1_500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4_000:]
    assert json.loads(done.stdout)["letters"] == len(made.letters)
    assert "local-cluster" in "".join(file.read_text() for file in files(logged))
    said = {"output": done.stdout + done.stderr} | {str(f): f.read_text(errors="replace") for f in files(ingesting.folder)}
    assert [name for name, text in said.items() if PASSWORD in text] == []


def _spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def _ingest(ingesting: Ingesting, spark: SparkSession, retry_topics: list[str] | None = None) -> Ingest:
    options = spark_kafka_options.build_options(ingesting.servers, {})
    return Ingest(spark, options, ingesting.outcomes, str(ingesting.data), retry_topics=retry_topics or ())


def _send_of_teams(ingesting: Ingesting, teams: Sequence[str], retried: str) -> None:
    """Send for each team a letter that was parked, and a retry."""
    own = {"bootstrap.servers": ingesting.servers, "message.max.bytes": 4 << 20, "compression.type": "zstd"}
    producer = Producer(own)
    for n, team in enumerate(teams):
        letter = {**ROW, "id": f"{n}", "team": team, "decision": "park", "due_ms": None, "reason": "rule"}
        producer.produce(ingesting.outcomes, orjson.dumps(tell_of(letter)), b"k")
        ours = {"retry-id": f"{n}", "retry-attempt": "1", "retry-policy": f"{team}/orders#1"}
        producer.produce(retried, b"v", b"k", headers={name: text.encode() for name, text in ours.items()})
    assert producer.flush(60) == 0


def _produce(ingesting: Ingesting, *records: tuple[str, Row | bytes]) -> None:
    for key, told in records:
        ingesting.producer.produce(ingesting.outcomes, told if isinstance(told, bytes) else orjson.dumps(told), key)
    assert ingesting.producer.flush(20) == 0


_COLUMNS = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
_HEADERS = "headers array<struct<key: string, value: binary>>"


def _records(spark: SparkSession, *records: tuple[str | None, object]) -> DataFrame:
    found = [
        (key and key.encode(), orjson.dumps(told) if isinstance(told, dict) else told, "app-outcomes", 0, offset, 1_500, 0, None)
        for offset, (key, told) in enumerate(records)
    ]
    return make_timed_rows(spark, found)


def _retries(spark: SparkSession, *headers: list[tuple[str, bytes | None]] | None) -> DataFrame:
    return make_timed_rows(spark, [(b"key", b"order", "orders.retry", 3, n, 1_500, 1, each) for n, each in enumerate(headers)])


def make_timed_rows(spark: SparkSession, found: list[tuple[object, ...]]) -> DataFrame:
    columns = f"{_COLUMNS.replace('timestamp timestamp', 'timestamp long')}, {_HEADERS}"
    return spark.createDataFrame(found, columns).selectExpr(
        "key", "value", "topic", "partition", "offset", "timestamp_millis(timestamp) timestamp", "timestampType", "headers"
    )
