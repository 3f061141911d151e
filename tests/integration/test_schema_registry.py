"""The registry's client against a real HTTP server."""

from __future__ import annotations

import pytest

from retry.errors import SchemaUnavailable, SettingsInvalid, TaskInvalid
from retry.kafka.schema_registry import Schemas
from retry.scheduling.tasks import formats
from retry.scheduling.tasks.formats import Reader
from tests.support.registry import RegistryServer, confluent

KEY = {"customerId": "acme", "taskName": "bill"}
TASK = {**KEY, "frequency": {"frequencyTimeUnit": "DAYS", "time": 2}, "config": {"outputTopic": "bills", "configurations": None}}
NAMES = ("TaskFrequencyTimeUnits", "TaskConfiguration", "TaskFrequency")


@pytest.fixture
def server():
    running = RegistryServer()
    yield running
    running.close()


def reader(url):
    # As long as a busy machine may take for an answer; none of these tests waits for the end of it.
    return Reader(Schemas({"url": url, "timeout": "60", "max.retries": "0"} if url else {}))


def test_a_schema_with_references_is_put_together(server):
    """Register schemas as the seed's build does: units, configuration, frequency, then the definition that names all three."""
    units, config, frequency, definition = map(formats.schema_text, formats.DEFINITION_SCHEMA)
    server.add(1, units, "units")
    server.add(2, config, "config")
    server.add(3, frequency, "frequency", references=(("TaskFrequencyTimeUnits", "units", 1),))
    server.add(9, definition, references=(("TaskConfiguration", "config", 1), ("TaskFrequency", "frequency", 1)))
    server.add(4, formats.schema_text(formats.KEY_SCHEMA[0]))
    own = reader(server.url)
    for _ in range(2):
        datum = formats.encode_avro(TASK, formats.package_schema(formats.DEFINITION_SCHEMA))
        assert own.definition(confluent(9, datum)) == {**TASK, "data": None}
        assert own.decode_key(confluent(4, formats.encode_avro(KEY, formats.package_schema(formats.KEY_SCHEMA)))) == KEY
    assert sorted(path.partition("?")[0] for path in server.asked) == [
        "/schemas/ids/4", "/schemas/ids/9",
        "/subjects/config/versions/1", "/subjects/frequency/versions/1", "/subjects/units/versions/1",
    ]  # fmt: skip


def test_a_schema_that_is_missing_is_asked_for_once_in_a_while(server):
    own = reader(server.url)
    for _ in range(5):
        with pytest.raises(SchemaUnavailable, match="no schema 7"):
            own.definition(confluent(7, b""))
    assert len(server.asked) == 1
    server.add(8, '"string"')
    with pytest.raises(TaskInvalid, match="no mapping"):
        own.definition(confluent(8, b"\x02a"))


def test_a_registry_that_fails_is_left_alone_for_a_while(server):
    server.broken, own = 500, reader(server.url)
    for number in range(20):
        with pytest.raises(SchemaUnavailable, match="did not answer"):
            own.definition(confluent(number, b""))
    assert len(server.asked) <= 2


def test_a_slow_registry_does_not_take_all_the_time(server):
    """Everything else that is taken in waits for it."""
    server.slow_s, own = 0.8, reader(server.url)
    for number in range(1_000):
        with pytest.raises(SchemaUnavailable):
            own.definition(confluent(number, b""))
    assert len(server.asked) <= 8


def test_a_registry_that_is_not_there_is_an_error_and_no_end(server):
    server.close()
    with pytest.raises(SchemaUnavailable, match="did not answer"):
        reader(server.url).definition(confluent(1, b""))


def test_without_a_registry_the_setting_is_named():
    with pytest.raises(SchemaUnavailable, match="RETRY_REGISTRY_URL"):
        reader("").definition(confluent(1, b""))


@pytest.mark.parametrize("config", [{"url": "nowhere"}, {"no.such": "1"}, {"timeout": "soon"}])
def test_properties_that_the_client_refuses_are_settings(config):
    with pytest.raises(SettingsInvalid):
        Schemas({"url": "http://127.0.0.1:1", **config})


def test_schemas_that_refer_to_each_other_come_to_an_end(server):
    server.add(1, '"b"', "a", references=(("b", "b", 1),))
    server.add(2, '"a"', "b", references=(("a", "a", 1),))
    with pytest.raises(TaskInvalid) as caught:
        reader(server.url).definition(confluent(1, b"x"))
    assert caught.value.reason == "no_schema"
