"""A Spring Boot application, attached as docs/how-to/attach-spring.md says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.capture.running import Root, jvm
from tests.frameworks.conftest import Attach, build_class_path
from tests.support.attached import ORDERS, Topics

pytestmark = pytest.mark.release

GROUP = "order-service"
JARS: list[Root] = [("org.springframework.boot", "spring-boot-starter-kafka", "4.0.7")]


def test_orders_that_a_listener_throws_at_come_back_and_invalid_ones_park(attach: Attach) -> None:
    attached = attach("attach-spring.md", Topics("orders", "orders-dlt", "orders.retry"))
    attached.deployment.create({"returns": (3, {}), "returns-dlt": (3, {})})
    orders = {key: f"two of {key}".encode() for key in ORDERS}
    attached.send(orders | {"wrong": b"invalid"})
    jars = build_class_path(
        attached.with_snippets(Path(__file__).with_name("OrdersSpring.java")), "spring-boot", JARS, attached.folder
    )
    # Spring Boot reads this file of its working directory.
    servers = f"spring.kafka.bootstrap-servers={attached.bootstrap_servers}\n"
    (attached.folder / "application.properties").write_text(servers + attached.snippet("properties"))
    with jvm(jars, attached.folder, "com.example.OrdersSpring"):
        attached.await_letters(len(ORDERS) + 1)
        found = attached.discovered()
        assert (found["families"], found["groups"]) == ({"spring-kafka": 4}, {GROUP: 4})
        assert found["exceptions"] == {
            "java.nio.file.NoSuchFileException": len(ORDERS), "com.example.ValidationException": 1,
        }  # fmt: skip
        attached.retried_until_processed(orders, parked=["wrong"])
        attached.await_committed(GROUP, attached.topics.retries)
