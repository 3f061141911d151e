"""What the bench of analytics generates has the columns of the sets as they are today, and leaves what it says."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from retry.analytics.schemas import LETTER, POSITION, SENT
from tests.bench import analytics

pytestmark = pytest.mark.check

LETTERS = 90


def test_each_original_record_leaves_its_letters_and_retries(spark: SparkSession) -> None:
    alive = analytics._lives(spark, LETTERS).persist()
    letters, positions = analytics._letters(alive).persist(), analytics._positions(spark)
    sent = analytics.make_sent_rows(letters)
    assert (letters.columns, sent.columns, positions.columns) == (LETTER.names, SENT.names, POSITION.names)
    assert letters.select("id").distinct().count() == LETTERS
    lives = {row["id"]: row for row in alive.collect()}
    failed = {row["id"]: row["attempt"] for row in letters.orderBy("attempt").collect()}
    # The last letter is of the retry that recovers, or of the failure after the last delay.
    assert failed == {id_: row["last"] for id_, row in lives.items()}
    assert letters.where("decision = 'park'").count() == sum(not row["recovered"] for row in lives.values())
    assert sent.count() == letters.where("decision = 'retry'").count()
