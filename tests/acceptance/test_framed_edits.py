"""A letter that is framed for a schema registry is edited as JSON from the command line, and sent as its schema says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from retry.scheduling.tasks import formats
from tests.acceptance.test_acted_letters import WAITING, came, list_waiting
from tests.conftest import Deploy
from tests.support.letters import Sender
from tests.support.process import await_that
from tests.support.reading import Tail
from tests.support.registry import RegistryServer, confluent

pytestmark = pytest.mark.check

SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}, {"name": "cents", "type": "long"}]}'


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    server = RegistryServer()
    server.add(7, SCHEMA)
    yield server
    server.close()


def test_json_is_sent_as_avro(deploy: Deploy, registry: RegistryServer, tmp_path: Path) -> None:
    schema = formats.parse_avro_schemas([SCHEMA])
    deployment = deploy({"orders": 1}, shards=1, defaults=WAITING)
    (topic,), sender = deployment.dead_letters, Sender(deployment.bootstrap_servers)
    sender.send(topic, b"k", confluent(7, formats.encode_avro_json({"id": "a", "cents": 5}, schema)))
    sender.finish()
    worker = deployment.worker().start().await_ready()
    await_that("it waits", lambda: worker.metric("retry_entries_waiting") == 1)
    value, environ = tmp_path / "value", {"RETRY_REGISTRY_URL": registry.url}

    def edit(text: str, *options: str, code: int = 0, **environ: str) -> str:
        value.write_text(text)
        done = deployment.command("act", "edit", "key:k", "--value-file", str(value), *options, **environ)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    assert "schema 7 has no field cent;" in edit('{"id": "a", "cents": 5, "cent": 6}', code=3, **environ)
    assert "RETRY_REGISTRY_URL" in edit('{"id": "a", "cents": 6}', code=1)
    shown = edit('{"id": "a", "cents": 6}', **environ)
    assert '-  "cents": 5' in shown
    assert '+  "cents": 6' in shown
    assert "1 done" in edit('{"id": "a", "cents": 6}', "--yes", **environ)
    [row] = list_waiting(deployment)
    sent = deployment.command("act", "retry", "--letter", row["name"], "--yes")
    assert sent.returncode == 0, sent.stderr
    Tail(deployment.bootstrap_servers, deployment.retry_topics()).await_seen(1)
    [record] = came(deployment)
    assert (record.value or b"")[:5] == confluent(7, b"")
    assert formats.decode_avro_json((record.value or b"")[5:], schema) == json.loads(value.read_text())
    worker.terminate()
