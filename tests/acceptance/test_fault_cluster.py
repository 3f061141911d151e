"""Three brokers, of which one at a time dies or stops answering, while letters arrive and come back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from retry.kafka.transactional_ids import RememberedIds
from tests.acceptance import felling_worker
from tests.conftest import Deploy
from tests.support import topics
from tests.support.afterwards import nothing_is_wrong
from tests.support.busy import busy_cores
from tests.support.cluster import Cluster
from tests.support.deployment import Deployment
from tests.support.faults import Runs
from tests.support.load import Load
from tests.support.process import await_that
from tests.support.reading import Tail

# A node that comes back may take a minute on a busy machine.
pytestmark = pytest.mark.slow

FELLING = ("-m", "tests.acceptance.felling_worker")
DELAY_MS = 2_000
POLICY = "{backoff: {kind: constant, delay: 2s}, jitter: full}"
LETTERS_PER_S = 200
# What must come back before the next fault: some of it was due after the last one.
MORE = LETTERS_PER_S * 2
MORE_S, STARVED_S = 120.0, 900.0
FROZEN_S = 9.0
# Fewer copies than are asked for, for so long; then two of three brokers are gone at once.
UNMET_S, NO_QUORUM_S = 12.0, 10.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as three:
        yield three


def deploy_on_cluster(deploy: Deploy, cluster: Cluster, servers: str = "") -> Deployment:
    """Two workers that are ready and kill a broker when told to; the first reaches the cluster by `servers`, if given."""
    deployment = deploy({"one": 1, "three": 3}, on=cluster, shards=4, defaults=POLICY, copies=3)
    fell = str(deployment.folder / "fell")
    for name, way in (("a", servers or cluster.bootstrap_servers), ("b", cluster.bootstrap_servers)):
        deployment.worker(name).start(*FELLING, FELL=fell, RETRY_INSTANCE=name, RETRY_BOOTSTRAP_SERVERS=way)
    for worker in deployment.workers.values():
        worker.await_ready()
    return deployment


def restart_node(cluster: Cluster, node: int) -> None:
    """The node comes back, and the others have given it all that it missed: the next one may die."""
    cluster.start(node)
    cluster.await_whole()


@pytest.mark.fault("group coordinator killed, three brokers")
def test_the_node_with_the_group_coordinator_dies(deploy: Deploy, cluster: Cluster, runs: Runs) -> None:
    deployment = deploy_on_cluster(deploy, cluster)
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    with Load(deployment, LETTERS_PER_S, DELAY_MS) as load:
        for group in (deployment.names.intake_group, deployment.names.table_group):
            tail.await_more(MORE, MORE_S)
            node = cluster.group_coordinator(group)
            cluster.kill(node)
            runs.add()
            await_that("another coordinates", lambda n=node, g=group: cluster.group_coordinator(g) not in (n, -1))
            tail.await_more(MORE, MORE_S)
            restart_node(cluster, node)
    tail.close()
    nothing_is_wrong(deployment, load.sender)


def kill_coordinator(deployment: Deployment, cluster: Cluster, names: Sequence[str]) -> int:
    """Have the coordinator of one of some producers killed while it commits; return which node that was."""
    nodes: dict[str, int] = {}

    def is_killed() -> bool:
        # A producer may go on under another id before it commits.
        if nodes.keys() != set(ids := list_ids(deployment, names)):
            nodes.clear()
            nodes.update((each, cluster.transaction_coordinator(each)) for each in ids)
            felling_worker.order(deployment.folder / "fell", {each: cluster.nodes[n].pid for each, n in nodes.items()})
        return not all(cluster.nodes[n].running() for n in nodes.values())

    await_that("a node dies", is_killed)
    return next(n for n in nodes.values() if not cluster.nodes[n].running())


def list_ids(deployment: Deployment, names: Sequence[str]) -> list[str]:
    """List the transactional ids that producers of the first worker have just now."""
    remembered = RememberedIds(deployment.worker("a").data_dir / "transactional-ids.json")
    return [remembered.find_ids(f"{deployment.app_id}-{name}").current for name in names]


@pytest.mark.fault("transaction coordinator killed during a commit, three brokers")
def test_the_node_with_the_transaction_coordinator_dies_during_a_commit(deploy: Deploy, cluster: Cluster, runs: Runs) -> None:
    deployment = deploy_on_cluster(deploy, cluster)
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    with Load(deployment, LETTERS_PER_S, DELAY_MS) as load:
        for names in (("intake-a", "intake-a:1"), ("sweep-a-0", "sweep-a-1")):
            tail.await_more(MORE, MORE_S)
            node = kill_coordinator(deployment, cluster, names)
            runs.add()
            tail.await_more(MORE, MORE_S)
            restart_node(cluster, node)
    tail.close()
    nothing_is_wrong(deployment, load.sender)


@pytest.mark.fault("broker frozen past all sessions (SIGSTOP), three brokers")
def test_a_node_that_stops_answering_and_comes_back(deploy: Deploy, cluster: Cluster, runs: Runs) -> None:
    deployment = deploy_on_cluster(deploy, cluster)
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    with Load(deployment, LETTERS_PER_S, DELAY_MS) as load:
        tail.await_more(MORE, MORE_S)
        node = cluster.transaction_coordinator(*list_ids(deployment, ["intake-a"]))
        cluster.freeze(node)
        tail.quiet(FROZEN_S)
        cluster.thaw(node)
        runs.add()
        tail.await_more(MORE, MORE_S)
        cluster.await_whole()
    tail.close()
    nothing_is_wrong(deployment, load.sender)


@pytest.mark.fault("one worker cut from the group coordinator alone, three brokers")
def test_a_worker_that_does_not_reach_the_group_coordinator_is_fenced(deploy: Deploy, cluster: Cluster, runs: Runs) -> None:
    deployment = deploy_on_cluster(deploy, cluster, cluster.proxied_servers)
    cut, other = deployment.worker("a"), deployment.worker("b")
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    with Load(deployment, LETTERS_PER_S, DELAY_MS) as load:
        for group in (deployment.names.table_group, deployment.names.intake_group):
            tail.await_more(MORE, MORE_S)
            node = cluster.group_coordinator(group)
            cluster.proxies[node].drop()
            runs.add()
            tail.quiet(FROZEN_S)
            # The cut one still reaches the other nodes, and tries to go on with what is no longer its own.
            if node == cluster.group_coordinator(deployment.names.table_group):
                await_that("the other has it all", lambda: other.metric("retry_shards_ready") == deployment.shards, MORE_S)
            tail.await_more(MORE, MORE_S)
            cluster.proxies[node].restore()
            await_that("the cut one shares again", lambda: cut.ready() and other.ready(), MORE_S)
    tail.close()
    nothing_is_wrong(deployment, load.sender)


def start_ended(deployment: Deployment) -> None:
    """A worker that could not reach its brokers for too long ends, and its supervisor starts it again."""
    for worker in deployment.workers.values():
        if not worker.running():
            worker.start()


def await_more_supervised(tail: Tail, deployment: Deployment) -> None:
    """More letters come back, from workers that are started again whenever they end."""
    count = len(tail.seen) + MORE

    def came() -> bool:
        start_ended(deployment)
        tail.read()
        return len(tail.seen) >= count

    await_that(f"{count} came back", came, STARVED_S)


@pytest.mark.fault("min.insync.replicas not met, rolling restart, two of three brokers killed at once")
@pytest.mark.parametrize("spinning", [0, pytest.param(50, marks=pytest.mark.alone)])
def test_too_few_copies_and_restarts_send_nothing_twice(deploy: Deploy, cluster: Cluster, runs: Runs, spinning: int) -> None:
    deployment = deploy_on_cluster(deploy, cluster)
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    with busy_cores(spinning), Load(deployment, LETTERS_PER_S, DELAY_MS) as load:
        for topic in (deployment.names.changelog, *deployment.retry_topics()[:1], "__transaction_state"):
            await_more_supervised(tail, deployment)
            topics.configure(deployment.admin, topic, min_insync_replicas="3")
            cluster.kill(3)
            runs.add()
            tail.quiet(UNMET_S)
            cluster.start(3)
            topics.configure(deployment.admin, topic, min_insync_replicas="2")
            cluster.await_whole(timeout_s=STARVED_S)
        for node in cluster.nodes:
            await_more_supervised(tail, deployment)
            cluster.nodes[node].stop()
            runs.add()
            cluster.start(node)
        await_more_supervised(tail, deployment)
        for node in (1, 2):
            cluster.kill(node)
        runs.add()
        tail.quiet(NO_QUORUM_S)
        for node in (1, 2):
            cluster.nodes[node].launch()
        for node in (1, 2):
            cluster.nodes[node].await_ready()
        cluster.await_whole(timeout_s=STARVED_S)
    start_ended(deployment)
    tail.close()
    nothing_is_wrong(deployment, load.sender, STARVED_S)
    for worker in deployment.workers.values():
        assert "Traceback" not in worker.log()
