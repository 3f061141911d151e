"""A Faust application, attached as docs/how-to/attach-faust.md says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.frameworks.conftest import Attach
from tests.support.attached import ORDERS, Attached, Topics

pytestmark = pytest.mark.release

GROUP = "orders-app"
SHOP = """\
class OrderInvalid(Exception):
    pass


def process(key, value):
    if value == b"invalid":
        raise OrderInvalid("no such article")
    with open(f"storehouse/{key.decode()}", "a") as file:
        print(value.decode(), file=file)
"""


def test_orders_that_an_agent_dead_letters_come_back_and_invalid_ones_park(attach: Attach) -> None:
    attached = attach("attach-faust.md", Topics("orders", "orders.DLT", "orders.retry"))
    orders = {key: f"two of {key}".encode() for key in ORDERS}
    attached.send(orders | {"wrong": b"invalid"})
    with application(attached):
        attached.await_letters(len(ORDERS) + 1)
        attached.await_committed(GROUP, attached.topics.orders)
        found = attached.discovered()
        assert found["families"] == {"ad-hoc": 4} and found["origin_readers"] == {"orders": [GROUP]}
        assert found["exceptions"] == {"builtins.FileNotFoundError": len(ORDERS), "shop.OrderInvalid": 1}
        attached.retried_until_processed(orders, parked=["wrong"])
        attached.await_committed(GROUP, attached.topics.retries)


@contextmanager
def application(attached: Attached) -> Iterator[None]:
    """The application of the page while the block runs."""
    page = attached.snippet("python")
    assert "broker-1:9092" in page
    (attached.folder / "orders_app.py").write_text(page.replace("broker-1:9092", attached.bootstrap_servers))
    (attached.folder / "shop.py").write_text(SHOP)
    command = [sys.executable, "-m", "faust", "-A", "orders_app", "worker", "--without-web", "-l", "warn"]
    with (attached.folder / "faust.log").open("wb") as log:
        worker = subprocess.Popen(command, cwd=attached.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield
        except AssertionError as error:
            error.add_note((attached.folder / "faust.log").read_text(errors="replace")[-4000:])
            raise
        finally:
            worker.kill()
            worker.wait()
