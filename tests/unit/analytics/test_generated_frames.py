"""The frames, their generator and the rules in plain Python agree; no Spark runs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.support import attempts as model
from tests.support.events import KINDS, SETTLE_MS, events

pytest.importorskip("pyspark")

from retry.analytics import schemas
from retry.analytics.schemas import OUTCOME
from retry.cli.analytics import LARGE_BYTES, absolute, is_large
from retry.telemetry import offset_records

MADE = events(90, seed=3)
TOLD = model.attempts(MADE.letters, MADE.sent, MADE.positions, settle_ms=SETTLE_MS, until_ms=MADE.until_ms)


def test_a_letter_is_an_outcome_and_its_place() -> None:
    assert schemas.LETTER.fields == [*OUTCOME.fields, *schemas.RECORD_LOCATION.fields]


def test_a_sample_is_what_is_written() -> None:
    written = json.loads(offset_records.to_json(offset_records.Position(group="g", topic="t", partition=0, offset=1, at_ms=2)))
    assert set(written) == {*schemas.SAMPLE.names, "passed_ms"}, "of no use where each retry is looked at"


def test_what_is_generated_has_the_columns_of_the_frames() -> None:
    made = ((MADE.letters, schemas.LETTER), (MADE.sent, schemas.SENT),
            (MADE.positions, schemas.POSITION), (TOLD, schemas.ATTEMPT))
    for rows, schema in made:
        assert {frozenset(row) for row in rows} == {frozenset(schema.names)}
        assert not [field.name for field in schema.fields if not field.nullable and any(row[field.name] is None for row in rows)]


def test_of_what_is_generated_the_rules_find_the_truth() -> None:
    found = Counter((row["team"], row["exception"], row["attempt"]) for row in TOLD if row["fate"] == "recovered")
    assert found == MADE.recovered
    assert not any(row["assumed"] or row["fate"] in ("waiting", "pending") for row in TOLD)
    assert sum(MADE.recovered.values()) + sum(MADE.parked.values()) == 90
    fates = Counter(model.lineages(MADE.letters, TOLD).values())
    assert fates == {"recovered": MADE.recovered.total(), "parked": MADE.parked.total()}


def test_who_recovers_follows_from_the_seed() -> None:
    assert events(90, seed=3) == MADE
    assert events(90, seed=4).recovered != MADE.recovered


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.team))
def test_as_many_recover_at_first_as_the_probability_says(kind: object) -> None:
    many = 4_000
    found = events(many, seed=1, kinds=[kind])  # type: ignore[list-item]
    chance = kind.recovers(1, kind.delays_ms[0])  # type: ignore[attr-defined]
    first = found.recovered[kind.team, kind.exception, 1]  # type: ignore[attr-defined]
    # Five standard deviations.
    assert abs(first - chance * many) <= 5 * (chance * (1 - chance) * many) ** 0.5


def test_a_folder_is_found_from_another_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("data") == str(tmp_path / "data")
    assert absolute("s3a://lake/retry") == "s3a://lake/retry"
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert absolute("data") == "data"


def test_a_folder_with_millions_of_events_is_large_and_one_that_is_elsewhere_is_not_looked_into(tmp_path: Path) -> None:
    day = tmp_path / "letters" / "day=2026-01-01"
    day.mkdir(parents=True)
    for name in ("a.parquet", "b.parquet", "c.crc"):
        with (day / name).open("wb") as file:
            file.truncate(LARGE_BYTES // 2)
    assert is_large(str(tmp_path))
    (day / "b.parquet").unlink()
    assert not is_large(str(tmp_path))
    assert not any(map(is_large, (None, str(tmp_path / "none"), "s3a://lake/retry")))
