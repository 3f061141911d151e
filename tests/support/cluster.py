"""Three brokers as three processes, each broker and controller: any one may die, and nothing acknowledged is lost."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from confluent_kafka.admin import ClusterMetadata

from retry.clock import Deadline, pause
from retry.kafka.asked_again import ask_until_answered
from retry.kafka.local_broker import HOST, LocalBroker, make_cluster_id
from tests.support.ports import free_port
from tests.support.process import await_that
from tests.support.proxy import Proxy
from tests.support.reading import admin

NODES = (1, 2, 3)
_ASK_S, _NODE_S = 20.0, 10.0
_HEAP_MB = 384
# Three of them share the machine with all else.
_START_S = 240.0
_SIGN = 1 << 31
_OFFSETS, _TRANSACTIONS = "__consumer_offsets", "__transaction_state"
# A listener for clients that are to stay behind a proxy.
PROXIED = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT"
# What every copy must have is on two of three nodes before it is acknowledged.
_COPIES = """\
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
controller.quorum.election.timeout.ms=500
controller.quorum.fetch.timeout.ms=1000
replica.lag.time.max.ms=5000
"""


class Cluster:
    """Three nodes, started together; nodes are told by their id, 1 to 3.

    Attributes:
      bootstrap_servers: the way to all of them.
      proxied_servers: the same through a proxy before each, `proxies`; whoever begins there stays behind them.
    """

    def __init__(self, folder: Path) -> None:
        controllers = {node: free_port() for node in NODES}
        voters = ",".join(f"{node}@{HOST}:{port}" for node, port in controllers.items())
        cluster_id = make_cluster_id()
        self.nodes: dict[int, LocalBroker] = {}
        self.proxies = {node: Proxy(free_port()) for node in NODES}
        for node, controller in controllers.items():
            port, proxy = free_port(), self.proxies[node]
            listeners = f"PLAINTEXT://{HOST}:{port},PROXIED://{HOST}:{proxy.target_port},CONTROLLER://{HOST}:{controller}"
            lines = [
                f"node.id={node}",
                f"controller.quorum.voters={voters}",
                f"listeners={listeners}",
                f"advertised.listeners=PLAINTEXT://{HOST}:{port},PROXIED://{HOST}:{proxy.port}",
                PROXIED,
                *_COPIES.splitlines(),
            ]
            self.nodes[node] = LocalBroker(folder / f"node-{node}", port, _HEAP_MB, lines, cluster_id)
        self.proxied_servers = ",".join(f"{HOST}:{proxy.port}" for proxy in self.proxies.values())
        self.bootstrap_servers = ",".join(node.bootstrap_servers for node in self.nodes.values())

    def __enter__(self) -> Cluster:
        for proxy in self.proxies.values():
            proxy.__enter__()
        # Formatting takes a process each, too.
        with ThreadPoolExecutor(len(NODES)) as pool:
            list(pool.map(LocalBroker.launch, self.nodes.values()))
        for node in self.nodes.values():
            node.await_ready(_START_S)
        self._admin = admin(self.bootstrap_servers)
        self.await_whole(topics=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for node in self.nodes.values():
            # One that is frozen would not end; what it wrote is of no interest any more.
            node.kill()
        for proxy in self.proxies.values():
            proxy.__exit__(kind, error, trace)

    def kill(self, node: int) -> None:
        """SIGKILL, as a power cut would."""
        self.nodes[node].kill()

    def start(self, node: int) -> None:
        """Start it again, and wait until it answers."""
        self.nodes[node].launch()
        self.nodes[node].await_ready(_START_S)

    def freeze(self, node: int) -> None:
        """SIGSTOP: its connections stay, and nobody answers."""
        self.nodes[node].signal(signal.SIGSTOP)

    def thaw(self, node: int) -> None:
        """Thaw a node that was frozen, with SIGCONT."""
        self.nodes[node].signal(signal.SIGCONT)

    def await_whole(self, topics: bool = True, timeout_s: float = 150.0) -> None:
        """Wait until all nodes are known, and all copies of all partitions of internal topics are current again."""
        await_that("all nodes have all copies", lambda: self._whole(topics), timeout_s)

    def _whole(self, topics: bool) -> bool:
        about = self._about()
        copies = [p for topic in about.topics.values() for p in topic.partitions.values()]
        whole = all(p.leader >= 0 and len(p.isrs) == len(p.replicas) for p in copies)
        return len(about.brokers) == len(NODES) and (whole or not topics)

    def group_coordinator(self, group: str) -> int:
        """The node that coordinates a consumer group: -1 where there is none for longer than a change of leaders takes."""
        return self._leader(_OFFSETS, group)

    def transaction_coordinator(self, transactional_id: str) -> int:
        """The node that decides the transactions of an id: -1 as above."""
        return self._leader(_TRANSACTIONS, transactional_id)

    def _leader(self, topic: str, name: str) -> int:
        deadline = Deadline(_ASK_S)
        while (node := self._leader_now(topic, name)) < 0 and not deadline.has_passed():
            pause(0.1)
        return node

    def _leader_now(self, topic: str, name: str) -> int:
        # A node that has just begun may not know the topic yet.
        partitions = self._about(topic).topics[topic].partitions
        return partitions[coordinating_partition(name, len(partitions))].leader if partitions else -1

    def _about(self, *topic: str) -> ClusterMetadata:
        """Ask a node about the cluster; another is asked where that one has died, or is frozen."""
        ask = self._admin.list_topics
        return ask_until_answered(lambda within_s: ask(*topic, timeout=min(within_s, _NODE_S)), 3 * _ASK_S)


def coordinating_partition(name: str, partitions: int) -> int:
    """The partition whose leader coordinates a group, or decides the transactions of an id; of so many."""
    return java_hash(name) % partitions


def java_hash(text: str) -> int:
    """The absolute value of `String.hashCode`, by which Kafka chooses the partition of a coordinator."""
    hashed = 0
    for char in text:
        hashed = (hashed * 31 + ord(char)) & 0xFFFFFFFF
    # Kafka masks the sign elsewhere, which gives other partitions for half of all negative numbers.
    return hashed if hashed < _SIGN else (2 * _SIGN - hashed) % _SIGN
