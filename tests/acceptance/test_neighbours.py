"""Two teams' letters beside neighbours that do all that may go wrong, while workers are killed, wiped and frozen."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event, Thread

import pytest
from confluent_kafka import Producer

from retry.clock import wall_ms
from retry.kafka.local_broker import LocalBroker
from tests.support.checker import verify_deployment
from tests.support.deployment import Deployment
from tests.support.faults import Runs
from tests.support.foreign import ForeignRecords, write_foreign
from tests.support.lateness import find_percentiles_ms, list_lateness_ms
from tests.support.letters import Letter, Sender
from tests.support.process import let_pass
from tests.support.quotas import limit_producer
from tests.support.reading import QUIET, Record, Tail
from tests.support.topics import configure

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(5_400)]

LETTERS_OF_A_TEAM, LETTERS_PER_S = 50_000, 60
KILLS, KILLS_ALONE = 100, 20
# Of each ten kills one takes the tables, too, and beside each twentieth a worker is frozen for longer than its session of 6 s.
WIPED_EACH, FROZEN_EACH, FROZEN_S = 10, 20, 9.0
DELAY_MS = 3_000
MANY_TEAMS = 14_156
FOREIGN = 10
# What the service may write in a second: twice what it does on average, and less than after a kill.
QUOTA = 500_000
AGE_MS_MAX, TOO_OLD_MS = 3_600_000, 7_200_000
# More than there can be of one kind, so that what verify finds of neighbours hides nothing.
EVERY_FINDING = "--sample", "1000000"
SEED = 4_711
DEFAULTS = f"{{backoff: {{kind: constant, delay: {DELAY_MS}ms}}, jitter: none, max_attempts: 5}}"
INNOCENT = ("steady", "busy")


class Teams(Deployment):
    """Two teams of letters that are counted, and one whose letters and topics are what goes wrong."""

    def _policies(self, defaults: str, topic_keys: str, more: int = 0) -> str:
        names = {name: f"{self.app_id}.{name}" for name in (*INNOCENT, "noisy")} | {f"g{n}": f"g{n}" for n in range(more)}
        teams = (f" {name}: {{topics: [{{dead_letters: {of}.DLT, retry_to: {of}.retry}}]}}\n" for name, of in names.items())
        return f"defaults: {defaults}\nteams:\n{''.join(teams)}"

    def load_teams(self, more: int) -> None:
        """Have workers load a policy file with so many more teams, whose topics nobody made."""
        self.policy_file.write_text(self._policies(DEFAULTS, "", more))


@pytest.mark.fault("workers killed, wiped, frozen beside refused letters, foreign records, hung transactions, a flood, a quota")
def test_two_teams_get_each_letter_back_once_and_on_time_beside_all_that_neighbours_do(
    broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory, runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    partitions = {"steady": 4, "busy": 4, "noisy": 60}
    folder, draw = tmp_path_factory.mktemp("neighbours"), random.Random(SEED)
    deployment = Teams(broker.bootstrap_servers, folder, partitions, shards=8, defaults=DEFAULTS)
    try:
        deployment.prepare()
        refusing = {"cleanup_policy": "compact", "message_timestamp_before_max_ms": str(AGE_MS_MAX)}
        configure(deployment.admin, f"{deployment.app_id}.noisy.retry", **refusing)
        for name in ("a", "b"):
            deployment.worker(name).start().await_ready()
        with Steady(deployment) as load:
            alone_ms = wall_ms()
            kill_workers(deployment, KILLS_ALONE, draw)
            beside_ms = wall_ms()
            with neighbours(deployment):
                kill_workers(deployment, KILLS - KILLS_ALONE, draw)
                until_ms = wall_ms()
                sent = load.finish()
        runs.add(KILLS)
        tail = Tail(deployment.bootstrap_servers, [f"{deployment.app_id}.{name}.retry" for name in INNOCENT])
        tail.await_seen(len(sent), 900.0)
        tail.quiet(10.0)
        tail.close()
        deployment.load_teams(0)
        found = find_among_innocent(deployment)
    finally:
        deployment.close()
    periods = (alone_ms, beside_ms), (beside_ms, until_ms)
    late = (list_lateness_ms(tail.records, *period) for period in periods)
    alone, beside = ({team: find_percentiles_ms(of[team])[1] for team in INNOCENT} for of in late)
    with capsys.disabled():
        print(f"\n{len(sent):,} letters, {KILLS} kills: p99 {alone} ms late alone, {beside} ms beside neighbours")
    assert len(sent) >= 2 * LETTERS_OF_A_TEAM
    assert find_faults(tail.records, sent) == {}
    assert found == {}
    assert all(beside[team] <= 3 * alone[team] for team in INNOCENT), (alone, beside)


class Steady:
    """Letters of two teams at a steady pace: so many of each, and then until the end is asked for."""

    def __init__(self, deployment: Deployment) -> None:
        self._sender, self._app_id = Sender(deployment.bootstrap_servers), deployment.app_id
        self._wanted, self._ended = LETTERS_OF_A_TEAM, Event()
        self._failed: list[BaseException] = []
        self._thread = Thread(target=self._send)

    def __enter__(self) -> Steady:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._wanted = 0
        self._ended.set()
        self._thread.join()

    def _send(self) -> None:
        first = 0
        try:
            while not self._ended.is_set() or first < self._wanted:
                self._sender.paced(LETTERS_PER_S, 1.0, partial(self._send_one, first))
                first += LETTERS_PER_S
        except BaseException as error:
            self._failed.append(error)

    def _send_one(self, first: int, more: int) -> None:
        n = first + more
        for team in INNOCENT:
            self._sender.send(f"{self._app_id}.{team}.DLT", b"key %d" % (n % 500), b"%d " % n + bytes(200))

    def finish(self) -> dict[str, Letter]:
        """Stop once there are enough; all that were sent, by their coordinates."""
        self._ended.set()
        self._thread.join()
        assert self._failed == []
        return self._sender.finish()


def kill_workers(deployment: Deployment, count: int, draw: random.Random) -> None:
    """Kill -9 one worker after the other at random moments, each when the one before is ready again; wipe and freeze some."""
    workers = list(deployment.workers.values())
    for n in range(1, count + 1):
        let_pass(draw.uniform(0.5, 4.0))
        victim = draw.choice(workers)
        assert victim.running(), f"{victim.name} ended by itself:\n{victim.tail()}"
        victim.kill()
        if n % WIPED_EACH == 0:
            deployment.wipe(victim)
        let_pass(draw.uniform(0.0, 1.0))
        victim.start().await_ready(300.0)
        if n % FROZEN_EACH == 0:
            frozen = draw.choice(workers)
            frozen.signal(signal.SIGSTOP)
            let_pass(FROZEN_S)
            frozen.signal(signal.SIGCONT)
            frozen.await_ready(300.0)


@contextmanager
def neighbours(deployment: Teams) -> Iterator[None]:
    """Do all that neighbours do, again and again, until the end of the block, behind a quota that all of the service share."""
    limit_producer(deployment.bootstrap_servers, deployment.app_id, QUOTA)
    ended, failed = Event(), list[BaseException]()
    turns: list[Callable[[], None]] = [
        Refused(deployment).send, Foreigners(deployment).write, Hung(deployment).hold, Crowd(deployment).load,
    ]  # fmt: skip

    def run(turn: Callable[[], None]) -> None:
        try:
            while not ended.wait(1.0):
                turn()
        except BaseException as error:
            failed.append(error)

    threads = [Thread(target=run, args=(turn,)) for turn in turns]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert failed == []


class Refused:
    """Letters that their retry topic refuses: without a key, where it is compacted; and a flood that names no group."""

    def __init__(self, deployment: Deployment) -> None:
        self._sender, self._topic = Sender(deployment.bootstrap_servers), f"{deployment.app_id}.noisy.DLT"

    def send(self) -> None:
        """Send some of each."""
        for n in range(100):
            self._sender.send(self._topic, None if n % 50 == 0 else b"k%d" % n, bytes(500), timestamp_ms=wall_ms())
        self._sender.send(self._topic, b"old", b"old", timestamp_ms=wall_ms() - TOO_OLD_MS)


class Foreigners:
    """Records in the service's own topics that nobody wrote who knows them."""

    def __init__(self, deployment: Deployment) -> None:
        self._records = ForeignRecords(SEED, deployment.names, f"{deployment.app_id}.noisy.DLT")
        self._servers = deployment.bootstrap_servers
        there = deployment.admin.list_topics(timeout=60).topics
        self._partitions = {topic: len(there[topic].partitions) for topic in self._records.topics() if topic in there}

    def write(self) -> None:
        """Write some to each of these topics."""
        for topic, partitions in self._partitions.items():
            write_foreign(self._servers, self._records, topic, FOREIGN, partitions)


class Hung:
    """A producer that leaves a transaction open on a dead-letter topic, but not for as long as brokers let it."""

    def __init__(self, deployment: Deployment) -> None:
        self._servers, self._app_id = deployment.bootstrap_servers, deployment.app_id

    def hold(self) -> None:
        """Hold one open for twenty seconds."""
        producer = Producer({
            "bootstrap.servers": self._servers, "transactional.id": f"{self._app_id}-hung", "transaction.timeout.ms": 60_000,
            "logger": QUIET,
        })  # fmt: skip
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(f"{self._app_id}.noisy.DLT", b"open", b"open", partition=0)
        producer.flush(10)
        let_pass(20.0)
        producer.abort_transaction(30)


class Crowd:
    """A policy file with very many teams, loaded while workers run."""

    def __init__(self, deployment: Teams) -> None:
        self._deployment, self._is_crowded = deployment, False

    def load(self) -> None:
        """Write it, or the small one again."""
        let_pass(60.0)
        self._is_crowded = not self._is_crowded
        self._deployment.load_teams(MANY_TEAMS if self._is_crowded else 0)


def find_among_innocent(deployment: Deployment) -> dict[str, list[str]]:
    """Find what `retry verify` says is wrong with letters of the two teams; what neighbours write themselves, it names too."""
    own = [f"{deployment.app_id}.{team}." for team in INNOCENT]
    found = verify_deployment(deployment, *EVERY_FINDING)["findings"]
    wrong = {kind: [each for each in some if any(name in each for name in own)] for kind, some in found.items()}
    return {kind: some[:5] for kind, some in wrong.items() if some}


def find_faults(records: list[Record], sent: dict[str, Letter]) -> dict[str, list[str]]:
    """Find letters that did not come, came twice, came early, were changed, or were never sent."""
    came = Counter(record.header("retry-source") for record in records)
    known = [(record, letter) for record in records if (letter := sent.get(record.header("retry-source"))) is not None]
    found = {
        "lost": [source for source in sent if source not in came],
        "duplicate": [source for source, count in came.items() if count > 1],
        "phantom": [source for source in came if source not in sent],
        "changed": [letter.source for record, letter in known if (record.key, record.value) != (letter.key, letter.value)],
        "early": [r.header("retry-source") for r in records if r.timestamp_ms < int(r.header("retry-due-ms"))],
    }
    return {kind: some[:5] for kind, some in found.items() if some}
