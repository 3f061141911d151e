"""Kafka Connect beside one cluster, which copies a topic of another into it, as docs/how-to/two-clusters.md says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from retry.kafka.child_process import Tethered
from retry.kafka.local_broker import HOST, LocalBroker, free_port
from tests.fixtures.capture.connect import VERSION
from tests.fixtures.capture.running import LOG_LEVEL, Root
from tests.support.pages import ROOT, blocks
from tests.support.process import await_that

PAGE = ROOT / "docs" / "how-to" / "two-clusters.md"
JARS: list[Root] = [
    ("org.apache.kafka", "connect-runtime", VERSION), ("org.apache.kafka", "connect-mirror", VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
]  # fmt: skip
_MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
_CONNECTOR = "letters"
# One broker has one copy of everything.
_SMALL = "".join(f"{topic}.storage.replication.factor=1\n" for topic in ("config", "offset", "status"))
_ANSWER_S, _END_S = 60.0, 30.0


def snippet(language: str, containing: str = "") -> str:
    """The one block of the page in a language that has some text."""
    (found,) = [block.text for block in blocks(PAGE) if block.language == language and containing in block.text]
    return found


class Mirror:
    """A worker of Kafka Connect with one connector; killed and started again as often as wanted.

    Args:
      jars: the class path; see `JARS`.
      folder: made; has its settings and its log.
      near: what it copies into, and where it keeps up to where it has read.
      far: what it copies from.
      topic: what it copies, by its name on the page.
    """

    def __init__(self, jars: str, folder: Path, near: LocalBroker, far: LocalBroker, topic: str) -> None:
        folder.mkdir()
        self._jars, self._folder, self._port = jars, folder, free_port()
        self._process: Tethered | None = None
        hosts = {"b.example:9092": near.bootstrap_servers, "a.example:9092": far.bootstrap_servers}
        listener = f"listeners=http://{HOST}:{self._port}\n"
        (folder / "connect.properties").write_text(replace_hosts(snippet("properties"), hosts) + _SMALL + listener)
        self._connector: dict[str, str] = json.loads(replace_hosts(snippet("json"), hosts))
        assert "payments\\.orders\\.DLT" in self._connector["topics"]
        self._connector["topics"] = topic.replace(".", "\\.")

    def start(self) -> Mirror:
        """Start the worker, which may be an old one's next life; what it is to copy, it remembers."""
        command = [shutil.which("java") or "java", "-Xmx256m", LOG_LEVEL, "-cp", self._jars, _MAIN]
        with (self._folder / "connect.log").open("ab") as log:
            self._process = Tethered([*command, str(self._folder / "connect.properties")], log, own_session=True)
        return self

    def attach(self) -> Mirror:
        """Say what it copies; once in its lives."""
        await_that("the connector is taken", lambda: self._ask("PUT", f"/connectors/{_CONNECTOR}/config", self._connector))
        return self

    def mend(self) -> None:
        """Start again what has failed for good, as the page says that an operator does every minute."""
        path = f"/connectors/{_CONNECTOR}/restart?includeTasks=true&onlyFailed=true"
        assert path in snippet("sh", "restart")
        self._ask("POST", path)

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process:
            self._process.kill()
            self._process.wait(_END_S)

    def tail(self) -> str:
        """The end of its log."""
        return (self._folder / "connect.log").read_text(errors="replace")[-6000:]

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> bool:
        """Whether it did what it was asked for; while it starts, or its cluster is away, it does nothing.

        Raises:
          AssertionError: it refuses the connector, or has ended.
        """
        assert self._process and self._process.poll() is None, self.tail()
        request = Request(f"http://{HOST}:{self._port}{path}", json.dumps(body).encode(), method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urlopen(request, timeout=_ANSWER_S):
                return True
        except HTTPError as error:
            if error.code == HTTPStatus.BAD_REQUEST:
                raise AssertionError(error.read().decode()) from None
            return False
        except (HTTPException, OSError):
            return False


def replace_hosts(text: str, hosts: Mapping[str, str]) -> str:
    for name, host in hosts.items():
        assert name in text or name.startswith("a.")
        text = text.replace(name, host)
    return text
