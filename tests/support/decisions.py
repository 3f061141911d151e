"""Rows of the frames `attempts` and `parked`, written down, and generated from a downstream of which the truth is known."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from retry.analytics.schemas import ATTEMPT

Row = dict[str, Any]


def attempt(lineage: str, number: int, fate: str, **other: Any) -> Row:
    """A decision to retry, made 1 s after the failure before it, of 100 bytes, sent 10 ms late."""
    failed_ms = other.pop("failed_ms", 1_000 * (number - 1))
    delay_ms = other.pop("delay_ms", 1_000)
    due_ms = failed_ms + delay_ms
    usual = {
        "team": "shop", "policy": "shop/orders.DLT", "topic": "orders.DLT", "target": "orders.retry", "exception": "Timeout",
        "cause": None, "fingerprint": "f" * 16, "id": lineage, "attempt": number, "first_failed_ms": 0, "failed_ms": failed_ms,
        "due_ms": due_ms, "delay_ms": delay_ms, "sent_ms": None if fate == "waiting" else due_ms + 10, "passed_ms": None,
        "back_ms": None, "back_as": None, "ended_ms": due_ms + 20, "bytes": None if fate == "waiting" else 100, "fate": fate,
        "assumed": False, "source": f"orders.DLT/0/{number}", "action_kind": None, "returned": False,
    }  # fmt: skip
    made = usual | other
    return {"first_policy": made["policy"]} | made


def park(lineage: str, number: int, reason: str | None = "max_attempts", **other: Any) -> Row:
    """A decision to park, 1 s after the failure before it."""
    failed_ms = other.pop("failed_ms", 1_000 * (number - 1))
    usual = {
        "team": "shop", "policy": "shop/orders.DLT", "topic": "orders.DLT", "target": "orders.parked", "exception": "Timeout",
        "cause": None, "fingerprint": "f" * 16, "id": lineage, "attempt": number, "first_failed_ms": 0, "failed_ms": failed_ms,
        "parked_ms": failed_ms, "reason": reason, "source": f"orders.DLT/0/{number}", "decision": "park", "action_kind": None,
        "stands": True, "by_policy": True,
    }  # fmt: skip
    return usual | other


def frame(spark: SparkSession, rows: Iterable[Row], schema: StructType = ATTEMPT) -> DataFrame:
    """The rows as a frame in the columns of the schema."""
    return spark.createDataFrame([tuple(row[name] for name in schema.names) for row in rows], schema)


def simulate_letters(
    chances: Mapping[str, Sequence[float]], letters: int, seed: int, **other: Any
) -> tuple[list[Row], list[Row]]:
    """Letters whose retry number n recovers with the n-th chance of their exception; after the last they are parked."""
    chance = random.Random(seed)
    tried: list[Row] = []
    parked: list[Row] = []
    for exception, each in chances.items():
        for number in range(letters):
            lineage = f"{other.get('team', 'shop')}-{exception}-{number}"
            failed_ms = begun_ms = chance.randrange(6 * 3_600_000)
            for nth, likely in enumerate(each, 1):
                delay_ms = int(chance.random() * 1_000 * 2**nth)
                ends = chance.random() < likely
                told = {"first_failed_ms": begun_ms, "failed_ms": failed_ms, "delay_ms": delay_ms, "exception": exception} | other
                tried.append(attempt(lineage, nth, "recovered" if ends else "failed", **told))
                failed_ms += delay_ms + 20
                if ends:
                    break
            else:
                told = {"first_failed_ms": begun_ms, "failed_ms": failed_ms, "exception": exception} | other
                parked.append(park(lineage, len(each) + 1, **told))
    return tried, parked
