"""A Quarkus application, attached as docs/how-to/attach-quarkus.md says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.capture.running import jvm
from tests.frameworks.conftest import Attach
from tests.support.attached import ORDERS, Attached, Topics
from tests.support.tools import missing

pytestmark = pytest.mark.release

GROUP = "order-service"
PROJECT = Path(__file__).with_name("quarkus")
# The first build fetches what Quarkus needs.
BUILD_S = 900


def test_orders_at_which_a_method_throws_come_back_and_invalid_ones_park(attach: Attach) -> None:
    attached = attach("attach-quarkus.md", Topics("orders", "orders.DLT", "orders.retry"))
    orders = {key: f"two of {key}".encode() for key in ORDERS}
    attached.send(orders | {"wrong": b"invalid"})
    with jvm(build_application_jar(attached), attached.folder, "io.quarkus.bootstrap.runner.QuarkusEntryPoint"):
        attached.await_letters(len(ORDERS) + 1)
        attached.await_committed(GROUP, attached.topics.orders)
        found = attached.discovered()
        assert found["families"] == {"smallrye": 4} and found["origin_readers"] == {"orders": [GROUP]}
        assert found["exceptions"] == {
            "java.nio.file.NoSuchFileException": len(ORDERS), "com.example.ValidationException": 1,
        }  # fmt: skip
        attached.retried_until_processed(orders, parked=["wrong"])
        attached.await_committed(GROUP, attached.topics.retries)


def build_application_jar(attached: Attached) -> str:
    """The jar that starts the application, whose settings are those of the page."""
    project = attached.folder / "project"
    sources, resources = project / "src" / "main" / "java", project / "src" / "main" / "resources"
    sources.mkdir(parents=True)
    resources.mkdir()
    shutil.copy(PROJECT / "pom.xml", project)
    attached.with_snippets(PROJECT / "OrdersQuarkus.java").rename(sources / "OrdersQuarkus.java")
    servers = f"kafka.bootstrap.servers={attached.bootstrap_servers}\n"
    (resources / "application.properties").write_text(servers + attached.snippet("properties"))
    if shutil.which("mvn") is None:
        missing("no mvn; install Maven")
    made = subprocess.run(
        ["mvn", "--batch-mode", "--quiet", "package"], cwd=project, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    assert made.returncode == 0, made.stdout[-4000:]
    return str(project / "target" / "quarkus-app" / "quarkus-run.jar")
