"""What Spark reads is what the service writes."""

from __future__ import annotations

import types
import typing

import orjson
import pytest

from retry import format_versions
from retry.telemetry.outcomes import LetterFields, LettersByShared, Outcome, SharedFields, encode_outcomes

schema = pytest.importorskip("retry.analytics.schemas")

SPARK_NAMES = {str: "string", bytes: "string", int: "long"}


def test_every_field_of_the_outcome_is_read_with_its_type_and_in_its_order() -> None:
    written = [(name, *_spark_type(hint)) for name, hint in typing.get_type_hints(Outcome).items()]
    read = [(f.name, f.dataType.jsonValue(), f.nullable) for f in schema.OUTCOME.fields]
    assert read == written


def test_a_written_record_has_fields_of_the_schema_and_no_others() -> None:
    shared = SharedFields("t", "a", 0, "t/a", 1, None, "retry", None, "b", None, None, "g")
    letters = LettersByShared(list, {shared: [LetterFields(b"a/0/1", 1, 1, 1, 3)]})
    (record,) = map(orjson.loads, encode_outcomes(letters, 2))
    (alike,) = record["letters"]
    assert {*record} <= {*schema.OUTCOME_RECORD.names}
    assert [*alike] == schema.OUTCOME_RECORD["letters"].dataType.elementType.names
    assert record["v"] == format_versions.OUTCOME.writes


@pytest.mark.parametrize("fields", [SharedFields, LetterFields])
def test_what_letters_share_and_what_they_do_not_is_read_with_its_type(fields: type) -> None:
    written = [(name, *_spark_type(hint)) for name, hint in typing.get_type_hints(fields).items()]
    read = {field.name: field for field in [*schema.SHARED.fields, *schema.OF_EACH.fields]}
    assert [(name, read[name].dataType.jsonValue(), read[name].nullable) for name, *_ in written] == written


def _spark_type(annotation: object) -> tuple[str, bool]:
    if isinstance(annotation, types.UnionType):
        (plain,) = set(typing.get_args(annotation)) - {type(None)}
        return SPARK_NAMES[plain], True
    return SPARK_NAMES[annotation], False  # type: ignore[index]
