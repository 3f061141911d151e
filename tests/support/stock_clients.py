"""Consumers that nobody here wrote, as a stranger installs them, each in a process of its own.

KafkaJS comes with `make tools`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence

from tests.support.chart import ROOT
from tests.support.reading import Record
from tests.support.tools import NODE_MODULES, node

_SCRIPTS = ROOT / "tests" / "consumers"
# Topic, partition, offset, key, value, headers; bytes as Latin-1.
Told = list[object]


def aiokafka(bootstrap_servers: str, count: int, topics: Sequence[str]) -> list[Told]:
    """Read some topics with stock aiokafka, which Faust reads with."""
    return _run([sys.executable, str(_SCRIPTS / "aiokafka_reader.py"), bootstrap_servers, str(count), *topics])


def kafkajs(bootstrap_servers: str, count: int, topics: Sequence[str]) -> list[Told]:
    """Read some topics with stock KafkaJS."""
    group = f"kafkajs-{uuid.uuid4().hex[:8]}"
    return _run([node(), str(_SCRIPTS / "kafkajs_reader.js"), bootstrap_servers, group, str(count), *topics])


Read = Callable[[str, int, Sequence[str]], list[Told]]
CLIENTS: list[Read] = [aiokafka, kafkajs]


def describe_record(record: Record) -> Told:
    """Describe a record that librdkafka has read, in the same form."""
    headers = [[name, _text(value)] for name, value in record.headers]
    return [record.topic, record.partition, record.offset, _text(record.key), _text(record.value), headers]


def _run(command: list[str]) -> list[Told]:
    environ = {**os.environ, "NODE_PATH": str(NODE_MODULES)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("latin-1")
