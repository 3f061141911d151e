"""An application on Kafka Streams, attached as docs/how-to/attach-streams.md says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.capture import streams
from tests.fixtures.capture.running import jvm
from tests.frameworks.conftest import Attach, build_class_path
from tests.support.attached import ORDERS, Attached, Topics

pytestmark = pytest.mark.release

GROUP = "orders-app"
SETTINGS = """\
application.id={group}
bootstrap.servers={bootstrap_servers}
state.dir={folder}/state
commit.interval.ms=200
"""


def test_records_that_a_processor_throws_at_come_back_and_what_cannot_be_deserialised_parks(attach: Attach) -> None:
    attached = attach("attach-streams.md", Topics("orders", "orders-app.DLT", "orders-app.retry"))
    orders = {key: n.to_bytes(4) for n, key in enumerate(ORDERS)}
    attached.send(orders | {"wrong": b"ten"})
    jars = build_class_path(
        attached.with_snippets(Path(__file__).with_name("OrdersStreams.java")), "streams", streams.JARS, attached.folder
    )
    with jvm(jars, attached.folder, "com.example.OrdersStreams", _properties(attached)):
        attached.await_letters(len(ORDERS) + 1)
        attached.await_committed(GROUP, attached.topics.orders)
        found = attached.discovered()
        assert found["families"] == {"kafka-streams": 4} and found["origin_readers"] == {"orders": [GROUP]}
        assert found["exceptions"] == {
            "java.nio.file.NoSuchFileException": len(ORDERS), "org.apache.kafka.common.errors.SerializationException": 1,
        }  # fmt: skip
        attached.retried_until_processed(orders, parked=["wrong"])
        attached.await_committed(GROUP, attached.topics.retries)


def _properties(attached: Attached) -> str:
    file = attached.folder / "streams.properties"
    own = SETTINGS.format(group=GROUP, bootstrap_servers=attached.bootstrap_servers, folder=attached.folder)
    file.write_text(own + attached.snippet("properties"))
    return str(file)
