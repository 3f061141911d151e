"""One browser and one incident for each module, and pages that fail their test where anything went wrong in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from retry.kafka.local_broker import LocalBroker
from tests.support.browser import Open, Watched, browsing
from tests.support.incident import Incident

# Of a starved machine.
expect.set_options(timeout=180_000)


# Not of the session: while it is there, its event loop runs, and nobody else in this process could start one.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start Chromium once for all tests of the console."""
    with browsing() as running:
        yield running


@pytest.fixture(scope="module")
def incident(request: pytest.FixtureRequest, broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Incident]:
    """Letters in every state and a console; `INCIDENT` of the module says more."""
    options: dict[str, Any] = getattr(request.module, "INCIDENT", {})
    made = Incident(broker.bootstrap_servers, tmp_path_factory.mktemp("incident"), **options)
    yield made
    made.close()


@pytest.fixture
def open_page(browser: Browser, incident: Incident) -> Iterator[Open]:
    """Opens a page of the console: `open_page("/letters", scheme="dark")`. A test fails if a page had to complain of anything."""
    watched: list[Watched] = []

    def goto(path: str, **options: Any) -> Watched:
        watched.append(Watched(browser, incident.url, **options))
        watched[-1].page.goto(path)
        return watched[-1]

    yield goto
    troubles = [trouble for each in watched for trouble in [*each.troubles, *each.refused()]]
    for each in watched:
        each.close()
    assert troubles == []
