"""A framework and the service beside it, attached as a page of docs/how-to says: what the page shows is what runs.

Consumers put each order into a file of a folder, the storehouse, and fail for as long as the folder is not there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer

from retry.kafka import consumer_groups
from retry.kafka.local_broker import LocalBroker
from tests.support.deployment import APPEND_TIME, Deployment
from tests.support.letters import Headers, Sender
from tests.support.pages import ROOT, blocks
from tests.support.process import await_that
from tests.support.reading import COMMITTED, QUIET, Record, read

# A name that is there twice, too: all of them must come back.
HEADERS: Headers = (("trace-id", b"4bf92f3577b34da6"), ("tag", b"new"), ("tag", b"urgent"))
ORDERS = ("order-1", "order-2", "order-3")
# The steps that pages wait, and those that a test has time for: between the second retry and the third there is time to mend.
_PAGE_DELAYS, _SOON = "delays: [1m, 5m, 30m]", "delays: [1s, 1s, 20s]"
_HERE = re.compile(r"/\* page: (.+?) \*/")
_ASK_S = 60.0


class Topics(NamedTuple):
    """The topics that a page names: where orders come in, where their consumer dead-letters them, and where they come back."""

    orders: str
    dead_letters: str
    retries: str


def undo(bootstrap_servers: str, topic: str) -> None:
    """Write a record in a transaction that is undone: whoever reads committed records alone never sees it."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": "undone", "logger": QUIET})
    producer.init_transactions(_ASK_S)
    producer.begin_transaction()
    producer.produce(topic, b"undone", b"undone")
    assert producer.flush(_ASK_S) == 0
    producer.abort_transaction(_ASK_S)


class Attached:
    """A deployment that is made of a page alone, and orders that fail until the storehouse is there.

    Args:
      page: its name in docs/how-to.
      folder: the working directory of the consumers; the storehouse is made in it.
    """

    def __init__(self, broker: LocalBroker, folder: Path, page: str, topics: Topics) -> None:
        self.bootstrap_servers, self.folder, self.topics = broker.bootstrap_servers, folder, topics
        self._page = ROOT / "docs" / "how-to" / page
        self.deployment = Deployment(broker.bootstrap_servers, folder, {}, alone=True)
        policies = self.snippet("yaml")
        assert _PAGE_DELAYS in policies
        self.deployment.policy_file.write_text(policies.replace(_PAGE_DELAYS, _SOON))
        self.deployment.create({topics.orders: (3, {}), topics.dead_letters: (1, {}), topics.retries: (3, APPEND_TIME)})

    def snippet(self, language: str, containing: str = "") -> str:
        """The one block of the page in a language that has some text."""
        (found,) = [block.text for block in blocks(self._page) if block.language == language and containing in block.text]
        return found

    def with_snippets(self, source: Path) -> Path:
        """A copy of a Java file in the working directory, with blocks of the page in it: `/* page: some text of the block */`."""
        text = _HERE.sub(lambda found: self.snippet("java", found[1]), source.read_text())
        (copy := self.folder / source.name).write_text(text)
        return copy

    def send(self, values: Mapping[str, bytes]) -> None:
        """Send orders by their keys, and a retry of a transaction that is undone: who sees it dead-letters one too many."""
        undo(self.bootstrap_servers, self.topics.retries)
        sender = Sender(self.bootstrap_servers)
        for key, value in values.items():
            sender.send(self.topics.orders, key.encode(), value, HEADERS)
        sender.finish()

    def await_letters(self, count: int) -> None:
        """Wait for the letters that the framework writes."""
        await_that(f"{count} letters are there", lambda: len(self._read(self.topics.dead_letters)) == count)

    def discovered(self) -> dict[str, Any]:
        """Run `retry discover` for the dead-letter topic; the file that it writes can be used, and tried on all letters."""
        file = self.folder / "discovered.yaml"
        rows = map(json.loads, self._told("discover", "--json", "--out", str(file)).splitlines())
        (row,) = [row for row in rows if row["topic"] == self.topics.dead_letters]
        assert row["attached"] and row["retry_to"] == self.topics.retries
        assert self._told("policies", "check", str(file)).endswith(": OK\n")
        tried = json.loads(self._told("try", "--file", str(file), "--json"))
        assert tried["topics"] == {self.topics.dead_letters: row["sampled"]} and tried["retried"] == row["sampled"]
        found: dict[str, Any] = row
        return found

    def retried_until_processed(self, orders: Mapping[str, bytes], parked: Collection[str] = ()) -> None:
        """Run a worker: orders fail again, the storehouse is built, and each is processed once.

        Args:
          orders: what was sent and fails until then.
          parked: keys of what no retry helps, by a rule of the page.
        """
        tried = json.loads(self._told("try", "--json"))
        assert (tried["retried"], tried["parked"]) == (len(orders), len(parked))
        worker = self.deployment.prepare().worker().start()
        # The framework carries the headers of the service along, so that each letter says which retry it was that failed.
        failed = {key: ["", "1", "2"] for key in orders}
        await_that("each order failed twice more", lambda: failed.items() <= self._attempts(self.topics.dead_letters).items())
        assert self.stored() == {}
        (self.folder / "storehouse").mkdir()
        await_that("each order is processed", lambda: set(self.stored()) == set(orders))
        worker.terminate()
        assert all(len(lines) == 1 for lines in self.stored().values())
        assert self._attempts(self.topics.retries) == {key: ["1", "2", "3"] for key in orders}
        for record in self._read(self.topics.retries):
            key = (record.key or b"").decode()
            of_order = [header for header in record.headers if header[0] in dict(HEADERS)]
            assert (record.value, of_order) == (orders[key], list(HEADERS))
        done = self._read(self.deployment.names.parked)
        assert sorted((record.key or b"").decode() for record in done) == sorted(parked)
        assert {record.header("retry-parked-reason") for record in done} <= {"rule"}

    def await_committed(self, group: str, topic: str) -> None:
        """Wait until a group has committed all records of a topic, the ends of transactions between them notwithstanding."""
        last = {(topic, record.partition): record.offset for record in self._read(topic)}

        def has_committed() -> bool:
            at = consumer_groups.read_positions(self.deployment.admin, group)
            return all(at.get(place, 0) > offset for place, offset in last.items())

        await_that(f"{group} has committed all of {topic}", has_committed)

    def stored(self) -> dict[str, list[str]]:
        """Read by order a line for each time that it was processed."""
        return {file.name: file.read_text().splitlines() for file in self.folder.glob("storehouse/*")}

    def _attempts(self, topic: str) -> dict[str, list[str]]:
        """List by key which retries lie in a topic; empty text for what was none."""
        found: dict[str, list[str]] = {}
        for record in self._read(topic):
            found.setdefault((record.key or b"").decode(), []).append(record.header("retry-attempt"))
        return {key: sorted(attempts) for key, attempts in found.items()}

    def _read(self, topic: str) -> list[Record]:
        return read(self.bootstrap_servers, [topic], COMMITTED)

    def _told(self, *arguments: str) -> str:
        ended = self.deployment.command(*arguments)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout
