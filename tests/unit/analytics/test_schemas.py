"""What Spark reads is what the service writes."""

from __future__ import annotations

import types
import typing

import orjson
import pytest

from retry.telemetry.outcomes import VERSION, Outcome, to_json

schema = pytest.importorskip("retry.analytics.schemas")

SPARK_NAMES = {str: "string", int: "long"}


def test_every_field_of_the_outcome_is_read_with_its_type_and_in_its_order() -> None:
    written = [(name, *_spark_type(hint)) for name, hint in typing.get_type_hints(Outcome).items()]
    read = [(f.name, f.dataType.jsonValue(), f.nullable) for f in schema.OUTCOME.fields]
    assert read == written


def test_a_written_outcome_has_exactly_the_fields_of_the_schema() -> None:
    outcome = Outcome(
        v=VERSION, id="a/0/1", source="a/0/1", team="t", topic="a", policy="t/a", attempt=1, exception=None, first_failed_ms=1,
        failed_ms=1, taken_ms=2, decision="retry", reason=None, due_ms=3, target="b",
        cause=None, fingerprint=None, group="g", delay_ms=2,
    )  # fmt: skip
    written = orjson.loads(to_json(outcome))
    assert list(written) == schema.OUTCOME.names
    assert written["v"] == VERSION


def _spark_type(annotation: object) -> tuple[str, bool]:
    if isinstance(annotation, types.UnionType):
        (plain,) = set(typing.get_args(annotation)) - {type(None)}
        return SPARK_NAMES[plain], True
    return SPARK_NAMES[annotation], False  # type: ignore[index]
