"""Definitions of tasks: what is read of three forms, and what is refused with a reason instead of an end."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import islice
from pathlib import Path

import fastavro
import pytest
from fastavro.utils import generate_many
from hypothesis import given
from hypothesis import strategies as st

import retry.scheduling.tasks
from retry.errors import SchemaUnavailable, TaskInvalid
from retry.scheduling.tasks import formats
from retry.scheduling.tasks.definition import UNITS_MS, Definition, encode_sample, make_samples, read
from retry.scheduling.tasks.formats import AVRO, CONFLUENT, FORMATS, JSON, Reader, find_form

KEY = {"customerId": "acme", "taskName": "bill"}
CONFIG = {"outputTopic": "bills", "configurations": None}
NAMESPACE = "org.cbenaveen.task.scheduling"


def no_registry(number):
    raise SchemaUnavailable(f"schema {number}: there is no registry")


reader = Reader(no_registry)


def definition_of(frequency=None, configurations=None, **more):
    config = {"outputTopic": "bills", "configurations": configurations}
    return {**KEY, "frequency": frequency, "config": config, "data": None, **more}


def through_avro(value):
    return reader.definition(formats.encode_avro(value, formats.package_schema(formats.DEFINITION_SCHEMA)))


def test_0_8_the_schemas_of_the_package_are_those_of_the_seed():
    folder = Path(retry.scheduling.tasks.__file__).parent / "schemas"
    found = {schema["name"]: schema for schema in (json.loads(path.read_text()) for path in folder.glob("*.avsc"))}
    text = {"type": "map", "values": "string"}
    assert {schema["namespace"] for schema in found.values()} == {NAMESPACE}
    assert found.pop("TaskFrequencyTimeUnits")["symbols"] == ["MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS", "WEEKS"]
    fields = {name: [(f["name"], f["type"], f.get("default", "-")) for f in each["fields"]] for name, each in found.items()}
    assert fields == {
        "TaskConfiguration": [("outputTopic", "string", "-"), ("configurations", ["null", text], None)],
        "TaskFrequency": [("frequencyTimeUnit", "TaskFrequencyTimeUnits", "-"), ("time", "int", "-")],
        "TaskDefinition": [
            ("customerId", "string", "-"), ("taskName", "string", "-"), ("frequency", ["null", "TaskFrequency"], None),
            ("config", "TaskConfiguration", "-"), ("data", ["null", text], None),
        ],
        "TaskDefinitionKey": [("customerId", "string", "-"), ("taskName", "string", "-")],
    }  # fmt: skip


def test_0_12_the_schemas_of_the_package_are_what_reads_and_writes():
    """Read the files of the package, where the seed generated classes when it was built: a value of theirs stays what it is."""
    assert json.loads(formats.schema_text("frequency-timeunit.avsc"))["symbols"] == list(UNITS_MS)
    for files, read_back in ((formats.KEY_SCHEMA, reader.decode_key), (formats.DEFINITION_SCHEMA, reader.definition)):
        schema = formats.package_schema(files)
        for value in generate_many(schema, 50):
            assert read_back(formats.encode_avro(value, schema)) == value


@pytest.mark.parametrize("unit", UNITS_MS)
@pytest.mark.parametrize("form", [AVRO, JSON])
def test_0_5_all_six_units(unit, form):
    value = definition_of({"frequencyTimeUnit": unit, "time": 3})
    schema = formats.package_schema(formats.DEFINITION_SCHEMA)
    payload = json.dumps(value).encode() if form == JSON else formats.encode_avro(value, schema)
    lengths_s = {"MILLISECONDS": 0.003, "SECONDS": 3, "MINUTES": 180, "HOURS": 10_800, "DAYS": 259_200, "WEEKS": 1_814_400}
    assert find_form(payload) == form
    assert read(KEY, reader.definition(payload)).every_ms == 1_000 * lengths_s[unit]


def test_json_may_leave_the_names_to_the_key_and_call_the_unit_a_unit():
    found = read(KEY, reader.definition(b' {"frequency": {"unit": "DAYS", "time": 1}, "config": {"outputTopic": "bills"}}'))
    assert found == Definition(customer_id="acme", task_name="bill", output_topic="bills", every_ms=86_400_000)


def test_cron_stands_in_the_frequency_or_in_the_configurations():
    by_json = read(KEY, definition_of({"cron": "0 6 * * *", "timeZone": "Europe/Berlin"}))
    own = {"schedule.cron": "0 6 * * *", "schedule.timeZone": "Europe/Berlin", "theirs": "x"}
    by_avro = read(KEY, through_avro(definition_of(None, own)))
    assert by_json == by_avro
    assert (by_json.cron, by_json.zone, by_json.every_ms) == ("0 6 * * *", "Europe/Berlin", 0)


def test_0_14_without_a_frequency_it_is_once():
    found = read(KEY, through_avro(definition_of()))
    assert (found.every_ms, found.cron) == (0, "")


def test_everything_that_a_task_may_say_of_itself():
    own = {
        "schedule.timeZone": "Europe/Berlin", "schedule.start": "2026-05-01T06:00", "schedule.end": "2026-06-01T00:00:00Z",
        "schedule.jitter": "5s", "schedule.misfire": "all", "schedule.late": "2m", "schedule.catchUp": "7",
    }  # fmt: skip
    found = read(KEY, through_avro(definition_of({"frequencyTimeUnit": "MINUTES", "time": 5}, own)))
    assert (found.start_ms, found.end_ms) == (1_777_608_000_000, 1_780_272_000_000)
    assert (found.jitter_ms, found.misfire, found.late_ms, found.catch_up_max) == (5_000, "all", 120_000, 7)


SECOND = {"frequencyTimeUnit": "SECONDS", "time": 1}
REFUSED = [
    (definition_of({"frequencyTimeUnit": "FORTNIGHTS", "time": 1}), "FORTNIGHTS"),
    (definition_of({"frequencyTimeUnit": "SECONDS", "time": 0}), "frequency.time"),
    (definition_of({"frequencyTimeUnit": "SECONDS", "time": -5}), "frequency.time"),
    (definition_of({"frequencyTimeUnit": "SECONDS", "time": True}), "frequency.time"),
    (definition_of({"frequencyTimeUnit": "SECONDS", "time": 1.5}), "frequency.time"),
    (definition_of({"frequencyTimeUnit": "WEEKS", "time": 10**6}), "ten years"),
    (definition_of({"time": 1}), "frequencyTimeUnit"),
    (definition_of("daily"), "neither a mapping nor null"),
    (definition_of({"cron": "every day"}), "five fields"),
    (definition_of({"cron": 5}), "cron expression"),
    (definition_of({"cron": "@daily", "timeZone": "Europe/Atlantis"}), "Atlantis"),
    (definition_of({"cron": "@daily", "timeZone": 7}), "time zone"),
    (definition_of(SECOND, {"schedule.cron": "@daily"}), "both a cron expression and a period"),
    (definition_of(SECOND, {"schedule.jitter": "1s"}), "as long as the period"),
    (definition_of(SECOND, {"schedule.jitter": "soon"}), "not a duration"),
    (definition_of(SECOND, {"schedule.start": "tomorrow"}), "not a time"),
    (definition_of(SECOND, {"schedule.end": "1066-10-14T00:00:00Z"}), "between 1970 and 9999"),
    (definition_of(SECOND, {"schedule.start": "0001-01-01T00:00:00+14:00"}), "not a time"),
    (definition_of(SECOND, {"schedule.misfire": "twice"}), "once, skip, all"),
    (definition_of(SECOND, {"schedule.catchUp": "0"}), "from 1 to 10,000"),
    (definition_of(SECOND, {"schedule.catchUp": "9" * 5_000}), "from 1 to 10,000"),
    (definition_of(SECOND, {"schedule.catchUp": "²"}), "from 1 to 10,000"),
    (definition_of(SECOND, {"schedule.late": "999ms"}), "shorter than 1s"),
    (definition_of(SECOND, {"schedule.jiter": "1s"}), "no such key"),
    (definition_of(SECOND, {"schedule.jitter": 5}), "not text"),
    (definition_of(SECOND, ["schedule.jitter"]), "config.configurations"),
    (definition_of(taskName="pay"), "taskName is 'pay', but 'bill' in the key"),
    (definition_of(config=None), "config is nothing"),
    (definition_of(config={}), "config.outputTopic"),
    (definition_of(config={"outputTopic": ""}), "config.outputTopic"),
    (definition_of(config={"outputTopic": 5}), "config.outputTopic"),
    ({}, "config is nothing"),
]


@pytest.mark.parametrize(("value", "told"), REFUSED, ids=[told for _, told in REFUSED])
def test_what_cannot_be_done_is_refused_and_said(value, told):
    with pytest.raises(TaskInvalid, match=told.replace("(", r"\(")) as caught:
        read(KEY, value)
    assert caught.value.reason == "bad_task" and len(str(caught.value)) < 400


@pytest.mark.parametrize("key", [{}, {"customerId": "acme"}, {"customerId": "", "taskName": "x"}, {"customerId": 1}])
def test_a_key_that_names_no_task_is_refused(key):
    with pytest.raises(TaskInvalid, match="the key's"):
        read(key, definition_of())


SECONDLY = formats.encode_avro(definition_of(SECOND), formats.package_schema(formats.DEFINITION_SCHEMA))


@pytest.mark.parametrize(
    "payload", [b"", b"\x06", b"{", b"{]", b"[1]", b"\0", b"\0\0\0", SECONDLY[:-1], SECONDLY + b"!", b"\xff" * 40, b"{" * 10**5],
    ids=str.split("nothing short brace bracket list magic magic+2 cut more ones deep"),
)  # fmt: skip
def test_bytes_that_are_no_definition_are_refused(payload):
    with pytest.raises(TaskInvalid):
        reader.definition(payload)


@given(st.binary(max_size=300))
def test_whatever_bytes_come_they_are_read_or_refused(payload):
    for ask in (reader.decode_key, reader.definition):
        with suppress(TaskInvalid, SchemaUnavailable):
            assert isinstance(ask(payload), dict)


@given(st.integers(0, 2**16), st.integers(0, 7), st.binary(min_size=1, max_size=3))
def test_a_damaged_definition_is_read_or_refused(place, number, damage):
    sample = next(islice(make_samples(1, ["bills"]), number, None))
    for form in (AVRO, JSON):
        whole = encode_sample(sample, form)[1]
        at = place % len(whole)
        with suppress(TaskInvalid, SchemaUnavailable):
            read(sample.key, reader.definition(whole[:at] + damage + whole[at + len(damage) :]))


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
said = st.sampled_from(["outputTopic", "configurations", "cron", "timeZone", "time", "unit", "schedule.cron", "schedule.start"])
values = leaves | st.lists(leaves, max_size=2) | st.dictionaries(said, leaves, max_size=3)


@given(st.dictionaries(st.sampled_from(list(definition_of())), values), values, values)
def test_whatever_a_definition_says_it_is_read_or_refused(value, frequency, configurations):
    for each in (value, definition_of(frequency, configurations)):
        with suppress(TaskInvalid):
            assert read(KEY, each).task_name == "bill"


@pytest.mark.parametrize("form", FORMATS[1:])
def test_only_the_form_of_the_policy_file_is_read(form):
    payloads = {AVRO: SECONDLY, JSON: b'{"a": 1}', CONFLUENT: b"\0\0\0\0\x07" + SECONDLY}
    own = Reader(lambda _: ("AVRO", tuple(map(formats.schema_text, formats.DEFINITION_SCHEMA))))
    assert own.definition(payloads[form], form)
    for other in payloads.keys() - {form}:
        with pytest.raises(TaskInvalid, match=f"it is {other}, not {form}"):
            own.definition(payloads[other], form)


def test_a_schema_of_the_registry_is_asked_for_once():
    asked = []

    def schema(number):
        asked.append(number)
        return ("AVRO", tuple(map(formats.schema_text, formats.DEFINITION_SCHEMA)))

    own = Reader(schema)
    for _ in range(3):
        assert own.definition(b"\0\0\0\0\x07" + SECONDLY) == definition_of(SECOND)
    assert asked == [7]


def test_a_writer_with_more_fields_and_cron_of_its_own_is_understood():
    schema = {
        "type": "record", "name": "Job", "fields": [
            {"name": "frequency", "type": {"type": "record", "name": "ByCron", "fields": [
                {"name": "cron", "type": "string"}, {"name": "timeZone", "type": "string"}]}},
            {"name": "config", "type": {"type": "record", "name": "C", "fields": [{"name": "outputTopic", "type": "string"}]}},
            {"name": "owner", "type": "string"},
        ],
    }  # fmt: skip
    own = Reader(lambda _: ("AVRO", (json.dumps(schema),)))
    value = {"frequency": {"cron": "@daily", "timeZone": "UTC"}, "config": {"outputTopic": "bills"}, "owner": "me"}
    payload = formats.encode_avro(value, fastavro.parse_schema(schema))
    assert read(KEY, own.definition(b"\0\0\0\0\x07" + payload)).cron == "@daily"


def test_json_with_a_schema_in_the_registry_is_json():
    own = Reader(lambda _: ("JSON", ("{}",)))
    assert own.definition(b'\0\0\0\0\x01{"config": {}}') == {"config": {}}


@pytest.mark.parametrize("text", ["", "no JSON", '"NoSuchType"', '{"type": 5}'])
@pytest.mark.parametrize("kind", ["PROTOBUF", "AVRO"])
def test_a_schema_that_is_of_no_use_is_a_reason(kind, text):
    with pytest.raises(TaskInvalid) as caught:
        Reader(lambda _: (kind, (text,))).definition(b"\0\0\0\0\x07abc")
    assert caught.value.reason == "no_schema"


def test_0_13_samples_are_read_back_and_have_every_kind():
    made = list(islice(make_samples(7, ["bills", "mails"]), 80))
    assert made == list(islice(make_samples(7, ["bills", "mails"]), 80)) != list(islice(make_samples(8, ["bills", "mails"]), 80))
    found = []
    for sample in made:
        for form in (AVRO, JSON):
            key, value = encode_sample(sample, form)
            assert reader.decode_key(key) == sample.key
            found.append(read(reader.decode_key(key), reader.definition(value)))
    assert {task.output_topic for task in found} == {"bills", "mails"}
    assert all(any(task.every_ms and task.every_ms % unit_ms == 0 for task in found) for unit_ms in UNITS_MS.values())
    assert any(task.cron for task in found) and any(not task.cron and not task.every_ms for task in found)
    assert len({(task.customer_id, task.task_name) for task in found}) == 80
