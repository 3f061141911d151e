"""Kafka Connect with a sink connector, attached as docs/how-to/attach-connect.md says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.capture import connect
from tests.fixtures.capture.running import jvm
from tests.frameworks.conftest import Attach, build_class_path
from tests.support.attached import ORDERS, Attached, Topics

pytestmark = pytest.mark.release

GROUP = "connect-warehouse-sink"
SINK = """\
name=warehouse-sink
connector.class=com.example.FolderSink
tasks.max=1
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
"""


def test_records_that_a_sink_reports_come_back_and_what_cannot_be_converted_parks(attach: Attach) -> None:
    attached = attach("attach-connect.md", Topics("warehouse", "warehouse.DLT", "warehouse.retry"))
    orders = {key: b'{"sold":"%s"}' % key.encode() for key in ORDERS}
    attached.send(orders | {"broken": b"not JSON"})
    jars = build_class_path(Path(__file__).with_name("FolderSink.java"), "connect", connect.JARS, attached.folder)
    with jvm(jars, attached.folder, connect.MAIN, *_properties(attached)):
        attached.await_letters(len(ORDERS) + 1)
        found = attached.discovered()
        assert (found["families"], found["groups"]) == ({"kafka-connect": 4}, {GROUP: 4})
        assert found["exceptions"]["java.nio.file.NoSuchFileException"] == len(ORDERS) and found["converters"] == 1
        attached.retried_until_processed(orders, parked=["broken"])
        attached.await_committed(GROUP, attached.topics.retries)


def _properties(attached: Attached) -> tuple[str, str]:
    """The files of the worker and of the connector; the second is what the page shows, and which connector it is."""
    sink = attached.folder / "sink.properties"
    sink.write_text(SINK + attached.snippet("properties"))
    return connect.worker_properties(attached.bootstrap_servers, attached.folder), str(sink)
