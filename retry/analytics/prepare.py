"""Makes the file of `retry.analytics.spark_session`: a report on a letter that was made up loads what any report needs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from retry.analytics import datasets, decode, spark_session
from retry.analytics.decisions import decisions
from retry.analytics.findings import findings
from retry.analytics.questions import recovery
from retry.analytics.schemas import LETTER, POSITION, SENT, laid_out

_MADE_UP = {datasets.LETTERS: (LETTER, "taken_ms"), datasets.RETRIES: (SENT, "sent_ms"), datasets.POSITIONS: (POSITION, "at_ms")}


def prepare() -> Path:
    """Find the file of the present Java and Spark, or make it; raises RetryError where Java did not make it."""
    return spark_session.find_archive() or spark_session.create_archive(_run_report)


def _run_report(java: str) -> None:
    with tempfile.TemporaryDirectory(prefix="retry-prepare-") as data:
        with spark_session.session("retry-prepare", kafka=False, java=java) as spark:
            for name, (schema, when_ms) in _MADE_UP.items():
                _write(spark, f"{data}/{name}", schema, when_ms)
            made = decisions(datasets.from_parquet(spark, data).select_period(), settle_ms=0)
            recovery.cells(made.attempts, made.settled_ms).collect()
            findings(spark, made, {"x": 1}, made)
        spark_session.end_java()


def _write(spark: SparkSession, folder: str, schema: StructType, when_ms: str) -> None:
    values: dict[str, Any] = {"decision": "retry", "attempt": 1}
    usual = {"string": "x", "bigint": 1_000}
    columns = [F.lit(values.get(field.name, usual[field.dataType.simpleString()])).cast(field.dataType).alias(field.name)
               for field in schema.fields]  # fmt: skip
    made = laid_out(spark.range(1).select(*columns).withColumn("day", decode.day(when_ms)))
    made.write.partitionBy(*{"day", "team"} & {*made.columns}).parquet(folder)
