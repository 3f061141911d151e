"""A real one-node Kafka broker on loopback, for development and tests. Not for production: one copy of everything."""

from __future__ import annotations

import base64
import socket
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from retry.clock import Deadline, pause
from retry.errors import BrokerNotStarted
from retry.jars import fetch_jars, find_java
from retry.kafka.child_process import Tethered

HOST = "127.0.0.1"
# Seconds where there is nothing else to do; much more where a machine is busy.
_START_S = 180.0
_STOP_S = 20.0
_BRIEF = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LASTING = ("-XX:+UseParallelGC",)
_LOGGING = [f"-Dorg.slf4j.simpleLogger.{option}" for option in ("defaultLogLevel=warn", "showDateTime=true")]
# One node holds everything, so internal topics have one copy; their partitions are few, so that a first start is quick.
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={log_dir}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
message.max.bytes=10485760
replica.fetch.max.bytes=10485760
"""
_given: set[int] = set()


def free_port() -> int:
    """Find a port on loopback that nobody listens on just now; never return a port twice in one process."""
    while True:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = int(probe.getsockname()[1])
        # The system may offer again what nobody listens on yet.
        if port not in _given:
            _given.add(port)
            return port


def make_cluster_id() -> str:
    """Make a random cluster id: 16 bytes in base64, as Kafka has it.

    The id never begins with a dash, which would be taken for an option.
    """
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")


class LocalBroker:
    """One broker process over one data directory; start, kill and start again as often as wanted.

    Args:
      data_dir: kept between starts; made and formatted when it is new.
      port: where clients connect; 0 asks the system for a free one, which then stays the same.
      overrides: lines `property=value` of the broker's configuration; the last of a property counts.
      brief: whether the JVM compiles only once, for a start that takes a third less; one that is measured compiles twice.
    """

    def __init__(
        self, data_dir: Path, port: int = 0, heap_mb: int = 512, overrides: Sequence[str] = (), cluster_id: str = "",
        *, brief: bool = True, jvm: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.data_dir, self.port = data_dir.absolute(), port or free_port()
        self._cluster_id = cluster_id or make_cluster_id()
        self.bootstrap_servers = f"{HOST}:{self.port}"
        self.log_file = self.data_dir / "broker.log"
        self._heap_mb, self._overrides = heap_mb, list(overrides)
        self._jvm = (*(_BRIEF if brief else _LASTING), *jvm)
        self._process: Tethered | None = None

    def start(self) -> LocalBroker:
        """Start it and return when it answers clients; raises BrokerNotStarted, or JarsUnavailable, JavaUnavailable."""
        self.launch()
        self.await_ready()
        return self

    def launch(self) -> None:
        """Start it and do not wait: one node of several answers only when most of them are there."""
        self._demand_free_port()
        classpath = ":".join(str(jar) for jar in fetch_jars("broker") + fetch_jars("broker-log"))
        properties = self._write_properties()
        if not (self.data_dir / "kafka" / "meta.properties").exists():
            format_it = ("kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", properties)
            if self._java(classpath, 128, *format_it).wait():
                raise BrokerNotStarted(f"the data directory could not be formatted; read {self.log_file}")
        self._process = self._java(classpath, self._heap_mb, "kafka.Kafka", properties)

    def _demand_free_port(self) -> None:
        with socket.socket() as probe:
            # As Java does: connections of a broker that has just ended are in nobody's way.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, self.port))
            except OSError as error:
                reason = f"nobody can listen on {self.bootstrap_servers}: {error.strerror}"
                raise BrokerNotStarted(f"{reason}; end what listens there, or give another port") from None

    def _write_properties(self) -> str:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        file, log_dir = self.data_dir / "server.properties", self.data_dir / "kafka"
        text = _PROPERTIES.format(host=HOST, port=self.port, controller_port=free_port(), log_dir=log_dir)
        file.write_text(text + "".join(f"{line}\n" for line in self._overrides))
        return str(file)

    def _java(self, classpath: str, heap_mb: int, *arguments: str) -> Tethered:
        # Whatever it leaves lies in its own directory, and nothing in the system's temporary folder.
        own = [f"-Djava.io.tmpdir={self.data_dir}", "-XX:-UsePerfData"]
        options = [f"-Xmx{heap_mb}m", *self._jvm, *_LOGGING, *own]
        with self.log_file.open("ab") as log:
            return Tethered([find_java(), *options, "-cp", classpath, *arguments], log, own_session=True)

    def await_ready(self, timeout_s: float = _START_S) -> None:
        """Return when it answers clients; raises `BrokerNotStarted` as `start` does."""
        deadline = Deadline(timeout_s)
        while not self._accepts_connections():
            if not self.running():
                raise BrokerNotStarted(f"the broker's process ended; read {self.log_file}")
            if deadline.has_passed():
                self.kill()
                raise BrokerNotStarted(f"the broker did not answer within {timeout_s:.0f} s; read {self.log_file}")
            pause(0.05)

    def _accepts_connections(self) -> bool:
        # The port opens when the broker has caught up with the controller, so a connection is the whole question.
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self.port)) == 0

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def wait(self) -> int:
        """Wait until the process ends by itself, and return its exit code."""
        return self._process.wait() if self._process else 0

    def stop(self) -> None:
        """End it in an orderly way, or with SIGKILL after 20 seconds."""
        if self._process and self.running():
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def signal(self, number: int) -> None:
        if self._process:
            self._process.send_signal(number)

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> LocalBroker:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
