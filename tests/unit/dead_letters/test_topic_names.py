"""What the names of dead-letter topics imply."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.dead_letters.frameworks.detection import Implied, infer_from_name


@pytest.mark.parametrize(
    "topic",
    [
        "orders.DLT", "orders-dlt", "orders.dlt", "orders.DLQ", "orders-dlq", "orders.dlq", "orders-dead-letter",
        "orders.dead-letter",
        "orders_error", "orders-retry-0", "orders-retry-60000", "dlq.orders",
    ],
)  # fmt: skip
def test_a_dead_letter_topic_implies_its_origin(topic: str) -> None:
    assert infer_from_name(topic) == Implied("orders", None)


@pytest.mark.parametrize(
    ("topic", "origin", "group"),
    [
        ("error.orders.billing", "orders", "billing"), ("error.eu.orders.billing", "eu.orders", "billing"),
        ("orders__billing__dlq", "orders", "billing"), ("orders__billing__retry", "orders", "billing"),
        ("orders__billing__1__retry", "orders", "billing"), ("eu__orders__billing__12__retry", "eu__orders", "billing"),
        ("orders.billing.dlt", "orders.billing", None), ("error.orders.dlq", "error.orders", None),
    ],
)  # fmt: skip
def test_some_names_imply_a_group(topic: str, origin: str, group: str | None) -> None:
    assert infer_from_name(topic) == Implied(origin, group)


@pytest.mark.parametrize(
    "topic",
    [
        "orders", "", ".DLT", "-dlq", "_error", "orders.DLT.old", "dlq.", "dead-letter-topic-orders",
        "dead-letter-topic-orders-dlq",
        "dlq-lcc-4x7vd", "error.orders", "error..billing", "error.", "orders-retry-", "orders-retry-x", "orders__dlq",
        "__billing__dlq",
    ],
)  # fmt: skip
def test_other_names_imply_no_group(topic: str) -> None:
    assert infer_from_name(topic).group is None


@pytest.mark.parametrize(
    "topic", ["orders", "", ".DLT", "orders.DLT.old", "dlq.", "dead-letter-topic-orders", "dlq-lcc-4x7vd-dlq", "error.orders"]
)
def test_other_names_imply_no_origin(topic: str) -> None:
    assert infer_from_name(topic) == Implied(None, None)


@pytest.mark.parametrize(
    ("topic", "origin", "group"),
    [
        ("orders.billing.dlt", "orders", "billing"), ("error.orders.billing.eu", "orders", "billing.eu"),
        ("error.orders.billing", "elsewhere", "billing"), ("orders.dlt", "orders", None), ("orders.billing.DLT", "orders", None),
        ("orders__billing__dlq", "orders__billing__retry", "billing"), ("error.orders.", "orders", None), ("orders..dlt",
        "orders", None),
    ],
)  # fmt: skip
def test_an_origin_that_a_header_names_stands_and_says_where_the_group_begins(topic: str, origin: str, group: str | None) -> None:
    assert infer_from_name(topic, origin) == Implied(origin, group)


@given(st.text(max_size=40), st.none() | st.text(max_size=10))
def test_every_name_is_read(topic: str, origin: str | None) -> None:
    found = infer_from_name(topic, origin)
    assert found.topic != "" or origin == ""
    assert found.group != ""
