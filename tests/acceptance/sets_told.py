"""How often each record is there that was ingested to a folder, as JSON; for `spark-submit`, which has the folder's file system.

    spark-submit tests/acceptance/sets_told.py DATA
"""

from __future__ import annotations

import json
import sys
from collections import Counter

from retry.analytics import datasets
from retry.analytics.spark_session import open_session

NAMES = {
    "letters": ("source", "attempt"),
    "sent": ("id", "attempt"),
    "positions": ("group", "partition", "offset", "at_ms"),
}


def count_records_by_set(data: str) -> dict[str, list[tuple[list[object], int]]]:
    """Count how often each record is there, by set and by the names of the record."""
    with open_session("told") as spark:
        found = datasets.read_parquet(spark, data)
        frames = {"letters": found.letters, "sent": found.sent, "positions": found.positions}
        rows = {name: Counter(tuple(row) for row in frames[name].select(*NAMES[name]).collect()) for name in NAMES}
        return {name: [(list(row), count) for row, count in counts.items()] for name, counts in rows.items()}


if __name__ == "__main__":
    print(json.dumps(count_records_by_set(sys.argv[1])))
