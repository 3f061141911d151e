"""Whatever one target does, the letters of other teams in the same shard come in time; once it is mended, its own come too."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
from confluent_kafka.admin import NewTopic

from tests.acceptance.test_refusing_targets import read_blocked
from tests.conftest import Deploy
from tests.support import policies, topics
from tests.support.cluster import NODES, Cluster
from tests.support.deployment import APPEND_TIME, Deployment
from tests.support.letters import Sender
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import COMMITTED, Tail, read
from tests.support.secured import Right, SecuredBroker

pytestmark = pytest.mark.check

# The service writes to its own topics and to the others', and not to the target unless that is granted, too.
_TEAM_S_OWN = ("topic", "group", "transactional-id")
_IN_S = 180.0
_P99_MS_MAX = 2_000
_BURST, _MANY_SENT = 30_000, 1_000


class Load(NamedTuple):
    """How many letters of others, in how many seconds; one in five is followed by one for the target, if not more are."""

    letters: int
    seconds: float
    exact: bool

    def redecider(self, what: str, late_ms: list[int]) -> None:
        """Say how late they were, and refuse what is too late where the machine is given time to be judged."""
        p99_ms = sorted(late_ms)[len(late_ms) * 99 // 100]
        print(f"{what}: p99 {p99_ms} ms, worst {max(late_ms)} ms, of {len(late_ms)}")
        assert not self.exact or p99_ms < _P99_MS_MAX


@pytest.fixture(
    params=[
        Load(300, 6.0, exact=False),
        pytest.param(Load(9_000, 90.0, exact=True), marks=[pytest.mark.slow, pytest.mark.alone]),
    ],
    ids=["short", "long"],
)
def load(request: pytest.FixtureRequest) -> Load:
    return request.param


class Scene:
    """A shard for two teams, of which one has the target."""

    def __init__(self, deployment: Deployment, target: str) -> None:
        self.deployment, self.target = deployment, target
        self.guilty, self.good = deployment.dead_letters
        one, two = policies.topic(deployment, self.guilty, retry_to=target), policies.topic(deployment, self.good)
        deployment.policy_file.write_text(policies.text({"a": policies.team(one), "b": policies.team(two)}))
        self.worker: WorkerProcess = deployment.worker().start().await_ready()
        self._sender = Sender(deployment.bootstrap_servers)

    def others_come(
        self, what: str, load: Load, break_it: Callable[[], object], bytes_each: int = 100, *,
        before: bool = True, one_in: int = 5,
    ) -> None:  # fmt: skip
        """Send; the target breaks when a third is sent, and stays broken until all letters of the others are back, once each.

        Args:
          before: whether it has letters before it breaks, too.
          one_in: how many letters of the others there are for each of its own.
        """
        deployment = self.deployment
        tail = Tail(deployment.bootstrap_servers, [deployment.retry_of(self.good)])

        def one(n: int) -> None:
            if n == load.letters // 3:
                break_it()
            self._sender.send(self.good, b"k%d" % n, b"v")
            if n % one_in == 0 and (before or n > load.letters // 3):
                self._sender.send(self.guilty, b"k%d" % n, os.urandom(bytes_each))

        self._sender.paced(load.letters, load.seconds, one)
        self._sender.finish()
        tail.await_seen(load.letters, _IN_S)
        tail.close()
        assert len(tail.records) == load.letters
        load.redecider(what, [record.timestamp_ms - int(record.header("retry-due-ms")) for record in tail.records])

    def send_to_target(self, letters: int) -> None:
        """Send so many letters for the target, all at once."""
        for n in range(letters):
            self._sender.send(self.guilty, b"k%d" % n, os.urandom(100))

    def count_sent(self) -> float:
        """How many retries the worker has sent of both teams."""
        return self.worker.metric("retry_entries_sent_total")

    def is_held_for(self, why: str) -> None:
        """Health names the target and what it lacks, and the log does not say it at every sweep."""
        lane = f"a {self.guilty} {self.target}"

        def tells_reason() -> bool:
            # A breaker may hold it at first, with what the brokers said of a record.
            said = read_blocked(self.worker).get(lane, "")
            return said.startswith(f"{self.target}: ") and why in said

        await_that(f"health says {why}", tells_reason)
        assert self.worker.log().count("\n") < 200

    def flows_again(self) -> None:
        """Check that what waited for the target comes, and that all is well."""
        await_that("nothing waits", lambda: self.worker.metric("retry_entries_waiting") == 0, _IN_S)
        await_that("nothing is held", lambda: read_blocked(self.worker) == {}, _IN_S)
        self.worker.terminate()


@pytest.fixture
def scene(deploy: Deploy) -> Scene:
    deployment = deploy({"guilty": 1, "good": 1}, shards=1)
    return Scene(deployment, deployment.retry_of(next(iter(deployment.dead_letters))))


@pytest.mark.fault("retry topic deleted under load")
def test_others_come_while_a_target_is_deleted_under_load(scene: Scene, load: Load) -> None:
    admin = scene.deployment.admin
    scene.others_come("deleted", load, lambda: topics.delete(admin, scene.target))
    scene.is_held_for("Unknown topic")
    topics.create(admin, scene.target, 1, APPEND_TIME)
    scene.flows_again()


@pytest.mark.fault("retry topic takes no large records any more")
@pytest.mark.slow
def test_others_come_while_a_target_takes_no_large_records(scene: Scene, load: Load) -> None:
    admin = scene.deployment.admin
    narrow = {"max_message_bytes": "2000"}
    scene.others_come("narrow", load, lambda: topics.configure(admin, scene.target, **narrow), bytes_each=10_000)
    await_that("some are put back", lambda: scene.worker.metric("retry_entries_deferred_total") > 0)
    topics.configure(admin, scene.target, max_message_bytes="1000000")
    scene.flows_again()


@pytest.mark.fault("right to write to a retry topic withdrawn under load")
def test_others_come_while_a_target_may_not_be_written_to(deploy: Deploy, secured: SecuredBroker, load: Load) -> None:
    user, password = "service", "a password of this test"
    secured.add_user(user, password)
    me = f"User:{user}"
    mine = [Right(me, kind, "t", "all", prefixed=True) for kind in _TEAM_S_OWN]
    mine += [Right(me, "cluster", "kafka-cluster", "idempotent-write"), Right(me, "topic", "__consumer_offsets", "describe")]
    secured.grant(mine)
    deployment = deploy({"guilty": 1, "good": 1}, shards=1, on=secured.inner, environ=secured.environ(user, password))
    target = f"billing-{deployment.app_id}.retry"
    deployment.create({target: (2, dict(APPEND_TIME))})
    write = Right(me, "topic", target, "write")
    secured.grant([write, *(Right(me, "topic", target, right) for right in ("describe", "describe-configs"))])
    scene = Scene(deployment, target)
    scene.others_come("forbidden", load, lambda: secured.withdraw([write]))
    scene.is_held_for("no WRITE right for this principal; grant it, see `retry acls`")
    last, why = f"{scene.guilty}/0/{load.letters // 5 - 1}", f"{target}: no WRITE right"
    # It may not be taken in yet: only letters of the others are awaited.
    await_that("it is explained", lambda: why in deployment.command("explain", last).stdout)
    secured.grant([write])
    scene.flows_again()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as three:
        yield three


@pytest.mark.slow
@pytest.mark.fault("retry topic without a leader, three brokers")
def test_others_come_while_no_broker_leads_a_target_when_its_letters_are_due(deploy: Deploy, cluster: Cluster) -> None:
    deployment = deploy({"guilty": 1, "good": 1}, shards=1, on=cluster, copies=3)
    target, node = f"{deployment.app_id}.alone", 3
    new = NewTopic(target, 1, replica_assignment=[[node]], config=APPEND_TIME)
    deployment.admin.create_topics([new])[target].result(20)
    scene = Scene(deployment, target)
    # All else that the node led needs a moment, so how late the others are says nothing of the target.
    scene.others_come("no leader", Load(1_500, 30.0, exact=False), cluster.nodes[node].stop, before=False)
    scene.is_held_for("no broker leads its partition 0")
    cluster.start(node)
    scene.flows_again()


@pytest.mark.slow
@pytest.mark.fault("retry topic loses its leader under load, three brokers")
def test_others_come_while_a_target_loses_its_leader_under_a_transaction(deploy: Deploy, cluster: Cluster) -> None:
    node = NODES[-1]
    # Brokers create the topics of coordinators when somebody first needs one.
    deploy({"first": 1}, shards=1, on=cluster, copies=len(NODES)).worker().start().await_ready().terminate()
    cluster.await_whole()
    # Nothing but the target is led by that node afterwards, or it would be a fault of the others' topics, too.
    cluster.nodes[node].stop()
    deployment = deploy({"guilty": 1, "good": 1}, shards=1, on=cluster, copies=len(NODES) - 1)
    cluster.start(node)
    scene = Scene(deployment, f"{deployment.app_id}.alone")
    assert node not in coordinators(cluster, deployment)
    new = NewTopic(scene.target, 1, replica_assignment=[[node]], config=APPEND_TIME)
    deployment.admin.create_topics([new])[scene.target].result(20)
    load = Load(4_500, 45.0, exact=False)
    with ThreadPoolExecutor(1) as beside:

        def stop_under_transactions() -> None:
            # So many are sent in one transaction behind the other, of which one is open whenever the leader goes.
            scene.send_to_target(_BURST)
            sent = scene.count_sent()
            stop = cluster.nodes[node].stop
            beside.submit(lambda: (await_that("many are sent", lambda: scene.count_sent() > sent + _MANY_SENT), stop()))

        scene.others_come("leader lost", load, stop_under_transactions, one_in=1)
    scene.is_held_for("no broker leads its partition 0")
    assert "the brokers cannot end its last transaction yet" in scene.worker.log(), "nothing was open when the leader went"
    cluster.start(node)
    scene.flows_again()
    came = [record.value for record in read(deployment.bootstrap_servers, [scene.target], COMMITTED)]
    assert len(came) == len(set(came)) == load.letters + _BURST


def coordinators(cluster: Cluster, deployment: Deployment) -> set[int]:
    """The nodes whose end would be another fault besides."""
    names = deployment.names
    groups = {cluster.group_coordinator(group) for group in (names.intake_group, names.table_group)}
    ids = (f"{deployment.app_id}-{name}" for name in ("intake-a", "intake-a:1", "sweep-a-0", "sweep-a-1"))
    return groups | {cluster.transaction_coordinator(each) for each in ids}
