"""One broker for the whole session, and deployments on it; nothing of the developer's own settings."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from retry.kafka.local_broker import LocalBroker
from retry.process.logs import build_logging
from retry.telemetry.unreadable_records import UNREADABLE
from tests.support.cluster import Cluster
from tests.support.deployment import Deployment
from tests.support.ingesting import Ingesting
from tests.support.ports import use_everywhere
from tests.support.scheduler import Scheduling
from tests.support.secured import SecuredBroker
from tests.support.shared_broker import shared_broker
from tests.support.simulated_clock import Simulated, simulated_clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.support.faults", "tests.support.processes"]

use_everywhere()

for _name in [name for name in os.environ if name.startswith("RETRY_")]:
    del os.environ[_name]

# How long examples take to generate and to run says something of the machine; the first builds tables of characters.
# The same examples every time: a run that a newcomer or CI makes says something of the change, not of luck.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=20, derandomize=True, database=None
)
# `make faults` tries many more, and others each time: pytest --hypothesis-profile=thorough
settings.register_profile("thorough", settings.get_profile("any machine"), max_examples=1_000, derandomize=False)
settings.load_profile("any machine")

Deploy = Callable[..., Deployment]
Schedulings = Callable[..., Scheduling]
_DEPLOYMENTS = pytest.StashKey[list[Deployment]]()
_SCHEDULINGS = pytest.StashKey[list[Scheduling]]()


@pytest.fixture(autouse=True)
def _nothing_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command says at its end what its process has passed over; many tests are one process."""
    monkeypatch.setattr(UNREADABLE, "_by_topic", {})


@pytest.fixture(autouse=True)
def _logs_are_set_up_anew() -> Iterator[None]:
    """A command sets up the logs of its process; what the next test reads of the logs must not depend on it."""
    loggers = [logging.getLogger(), *(logging.getLogger(name) for name in build_logging("text", "info")["loggers"])]
    before = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        for handler in [each for each in logger.handlers if each not in handlers]:
            logger.removeHandler(handler)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A real broker, shared with the other processes of this run. Without Java this fails, and does not skip: nothing else
    here says what is promised."""
    folder = tmp_path_factory.getbasetemp()
    with shared_broker((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "shared-broker") as shared:
        yield shared


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A real broker that asks for a password or a certificate, and allows nothing that was not granted."""
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.fixture
def deploy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deploy]:
    """Makes deployments: `deploy({"orders": 3}, shards=2)`, on the session's broker or on `on`."""
    deployments = request.node.stash.setdefault(_DEPLOYMENTS, [])

    def make(dead_letters: dict[str, int], *, on: LocalBroker | Cluster | None = None, **options: object) -> Deployment:
        local = on or request.getfixturevalue("broker")
        folder = tmp_path / f"deployment-{len(deployments)}"
        made = Deployment(local.bootstrap_servers, folder, dead_letters, **options)  # type: ignore[arg-type]
        deployments.append(made)
        return made.prepare()

    yield make
    for made in deployments:
        made.close()


@pytest.fixture
def scheduling(request: pytest.FixtureRequest, tmp_path: Path, broker: LocalBroker) -> Iterator[Schedulings]:
    """Makes schedulers with topics of their own: `scheduling(partitions, SINCE_DELTA="-1")`."""
    made: list[Scheduling] = request.node.stash.setdefault(_SCHEDULINGS, [])

    def make(partitions: int = 3, **environ: str) -> Scheduling:
        made.append(Scheduling(broker.bootstrap_servers, tmp_path, partitions, **environ))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def stepped_clock() -> Iterator[Simulated]:
    """The service's clock, which goes on only when a test says so."""
    with simulated_clock() as simulated:
        yield simulated


@pytest.fixture
def ingesting(broker: LocalBroker, tmp_path: Path) -> Ingesting:
    """A deployment's outcomes and retry topics without a service, and a folder to ingest them to."""
    return Ingesting(broker.bootstrap_servers, tmp_path)


@pytest.fixture(scope="session")
def spark_sessions() -> Iterator[Callable[[], SparkSession]]:
    """Gives the one Spark session of this process, which a command that a test runs may have stopped since."""
    # Loading it takes a second that no other test should wait.
    from retry.analytics.spark_session import open_session

    current: list[SparkSession] = []
    with ExitStack() as stack:

        def running() -> SparkSession:
            if not current or current[-1].sparkContext._jsc is None:
                current.append(stack.enter_context(open_session("test")))
            return current[-1]

        yield running


@pytest.fixture
def spark(spark_sessions: Callable[[], SparkSession]) -> SparkSession:
    """A real Spark session."""
    return spark_sessions()


@pytest.fixture
def deployment(deploy: Deploy) -> Deployment:
    """A deployment with one dead-letter topic of three partitions, no worker started."""
    return deploy({"orders": 3})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.failed:
        for made in [*item.stash.get(_DEPLOYMENTS, []), *item.stash.get(_SCHEDULINGS, [])]:
            report.sections += made.logs()
    return report
