"""Whose attempts are whose: no letter uses up those of another team or has them forgotten; chained topics of one team go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial

import pytest

from retry.clock import Deadline
from tests.conftest import Deploy
from tests.support.deployment import Deployment, await_that
from tests.support.letters import Headers, Sender
from tests.support.reading import Record, Tail

pytestmark = pytest.mark.check

MAX_ATTEMPTS, LETTERS = 3, 20
SOON = f"{{backoff: {{kind: constant, delay: 300ms}}, jitter: none, max_attempts: {MAX_ATTEMPTS}}}"
# A worker remembers far fewer letters than a neighbour writes between two failures of one letter.
LINEAGES, FLOOD = 1_000, 2_500
QUIET_S = 2.0
LATE = "backoff: {kind: constant, delay: 1d, max_delay: 1d}"

# Dead-letter topic and key.
Which = tuple[str, bytes | None]
Again = Callable[[Record], Headers | None]


def streams(offset: int) -> Headers:
    return [
        ("__streams.errors.exception", b"java.lang.IllegalStateException"), ("__streams.errors.topic", b"orders"),
        ("__streams.errors.partition", b"0"), ("__streams.errors.offset", b"%d" % offset),
    ]  # fmt: skip


def spring(offset: int) -> Headers:
    return [
        ("kafka_dlt-original-topic", b"orders"), ("kafka_dlt-original-partition", bytes(4)),
        ("kafka_dlt-original-offset", offset.to_bytes(8, "big")), ("kafka_dlt-exception-fqcn", b"java.lang.Exception"),
    ]  # fmt: skip


def own(offset: int) -> Headers:
    return [("source_topic", b"orders"), ("source_partition", b"0"), ("source_offset", b"%d" % offset)]


FAMILIES: dict[str, Callable[[int], Headers]] = {"streams": streams, "spring": spring, "own": own}


def with_headers(record: Record) -> Headers | None:
    """Fails again, and copies all headers."""
    return record.headers


def without_headers(_: Record) -> Headers | None:
    """Fails again, and drops all headers."""
    return []


def succeeds(_: Record) -> Headers | None:
    return None


def deploy_teams(deploy: Deploy, teams: Mapping[str, Collection[str]], keys: str = "", **environ: str) -> Deployment:
    """A deployment whose teams have the topics of these names, each with some more keys in the policy file."""
    names = [name for of_team in teams.values() for name in of_team]
    deployment = deploy(dict.fromkeys(names, 1), shards=2, environ=environ)
    sections = []
    for team, of_team in teams.items():
        sections.append(f"  {team}:\n    topics:\n")
        for name in of_team:
            topic, more = f"{deployment.app_id}.{name}.DLT", keys.format(name=name)
            retry_to = deployment.retry_of(topic)
            sections.append(f"      - {{dead_letters: {topic}, retry_to: {retry_to}{more}}}\n")
    deployment.policy_file.write_text(f"defaults: {SOON}\nteams:\n" + "".join(sections))
    return deployment


class Consumers:
    """All consumers of a deployment, and whoever reads what is parked.

    Attributes:
      sender: writes dead letters.
      back: where a consumer writes what it fails on, by the topic that it reads.
      sent: every retry, by where its first letter was written and its key.
      parked: why letters were given up.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.sender = Sender(deployment.bootstrap_servers)
        self.back = {deployment.retry_of(topic): topic for topic in deployment.dead_letters}
        self._home, self._parking = dict(self.back), deployment.names.parked
        self._tail = Tail(deployment.bootstrap_servers, [*self.back, self._parking])
        self.sent: dict[Which, list[Record]] = {}
        self.parked: dict[Which, str] = {}

    def consume(self, until: Callable[[], bool], again: Again = succeeds) -> None:
        """Until something is so: read retries, and dead-letter those for which there are headers."""
        deadline = Deadline(240.0)
        while not until():
            assert not deadline.has_passed(), f"parked {self.parked}; sent {self.counts()}"
            for record in self._tail.read():
                if record.topic == self._parking:
                    self.parked[record.header("retry-source").split("/")[0], record.key] = record.header("retry-parked-reason")
                    continue
                self.sent.setdefault((self._home[record.topic], record.key), []).append(record)
                if (headers := again(record)) is not None:
                    self.sender.send(self.back[record.topic], record.key, record.value, headers)
            self.sender.finish()

    def counts(self) -> Counter[Which]:
        """How often each letter was sent."""
        return Counter({which: len(records) for which, records in self.sent.items()})

    def are_parked(self, letters: Collection[Which]) -> bool:
        return all(letter in self.parked for letter in letters)

    def are_sent(self, letters: Collection[Which], times: int) -> bool:
        return all(len(self.sent.get(letter, ())) >= times for letter in letters)

    def quiet(self) -> None:
        """Wait until nothing more comes."""
        assert self._tail.quiet(QUIET_S) == []


@pytest.mark.parametrize("keys", ["", ", group: {name}-service"], ids=["no group", "groups"])
def test_first_failures_of_one_team_are_sent_though_another_one_has_used_up_its_attempts(deploy: Deploy, keys: str) -> None:
    """Both read one topic, and their frameworks do not say who failed. On half of the records each team fails first."""
    deployment = deploy_teams(deploy, {team: [f"{family}-{team}" for family in FAMILIES] for team in ("one", "two")}, keys)
    worker, consumers = deployment.worker().start().await_ready(), Consumers(deployment)
    halves, done = (range(LETTERS), range(LETTERS, 2 * LETTERS)), set[Which]()
    for of_one, of_two in (halves, halves[::-1]):
        for team, offsets in (("one", of_one), ("two", of_two)):
            for family, headers in FAMILIES.items():
                topic = f"{deployment.app_id}.{family}-{team}.DLT"
                for offset in offsets:
                    consumers.sender.send(topic, b"key %d" % offset, b"order %d" % offset, headers(offset))
                    done.add((topic, b"key %d" % offset))
        consumers.sender.finish()
        consumers.consume(partial(consumers.are_parked, done), with_headers)
    consumers.quiet()
    assert worker.running()
    assert consumers.counts() == dict.fromkeys(done, MAX_ATTEMPTS)
    assert consumers.parked == dict.fromkeys(done, "max_attempts")


def test_nobody_uses_up_attempts_of_another_team_by_coordinates_or_by_an_id_that_it_has_seen(deploy: Deploy) -> None:
    deployment = deploy_teams(deploy, {"one": ["theirs"], "two": ["forged"]})
    theirs, forged = deployment.dead_letters
    worker, consumers = deployment.worker().start().await_ready(), Consumers(deployment)
    letters, forgeries = {(theirs, b"key %d" % n) for n in range(LETTERS)}, 0
    for n in range(LETTERS):
        # Of a record that has not failed yet.
        for _ in range(MAX_ATTEMPTS + 2):
            consumers.sender.send(forged, b"claim %d" % n, b"v", own(n))
            forgeries += 1
    consumers.sender.finish()
    await_that("claims are taken in", lambda: worker.metric("retry_letters_read_total") == forgeries)
    for n in range(LETTERS):
        consumers.sender.send(theirs, b"key %d" % n, b"order %d" % n, own(n))
    consumers.sender.finish()
    consumers.consume(partial(consumers.are_sent, letters, 1))
    for which in letters:
        # Of one that has.
        (record,) = consumers.sent[which]
        for attempt in (b"0", b"1", b"2", b"3", b"99"):
            stolen = [("retry-id", record.header("retry-id").encode()), ("retry-attempt", attempt)]
            consumers.sender.send(forged, b"stolen", record.key, stolen)
            forgeries += 1
    consumers.sender.finish()
    await_that("what was stolen is taken in", lambda: worker.metric("retry_letters_read_total") == forgeries + LETTERS)
    for which in letters:
        (record,) = consumers.sent[which]
        consumers.sender.send(theirs, record.key, record.value, record.headers)
    consumers.sender.finish()
    back = deployment.retry_of(theirs)
    consumers.consume(partial(consumers.are_parked, letters), lambda record: record.headers if record.topic == back else None)
    assert {letter: len(consumers.sent[letter]) for letter in letters} == dict.fromkeys(letters, MAX_ATTEMPTS)
    assert {consumers.parked[letter] for letter in letters} == {"max_attempts"}
    ids = {topic: {r.header("retry-id") for (at, _), sent in consumers.sent.items() if at == topic for r in sent}
           for topic in (theirs, forged)}  # fmt: skip
    assert not ids[theirs] & ids[forged]


@pytest.mark.parametrize("family", FAMILIES)
def test_letters_that_fail_again_in_another_topic_of_their_team_are_sent_so_often_together(deploy: Deploy, family: str) -> None:
    """Retries of the first topic that fail are dead-lettered to the second, and those of that one to itself."""
    deployment = deploy_teams(deploy, {"one": ["orders", "orders.retry"]})
    first, then = deployment.dead_letters
    deployment.worker().start().await_ready()
    consumers = Consumers(deployment)
    consumers.back[deployment.retry_of(first)] = then
    for n in range(LETTERS):
        consumers.sender.send(first, b"key %d" % n, b"order %d" % n, FAMILIES[family](n))
    consumers.sender.finish()
    letters = {(then, b"key %d" % n) for n in range(LETTERS)}
    consumers.consume(partial(consumers.are_parked, letters), with_headers)
    consumers.quiet()
    sends = Counter(key for (_, key), records in consumers.sent.items() for _ in records)
    assert sends == {b"key %d" % n: MAX_ATTEMPTS for n in range(LETTERS)}
    assert consumers.parked == dict.fromkeys(letters, "max_attempts")
    of_letter = [consumers.sent[first, key] + consumers.sent[then, key] for _, key in letters]
    assert all(len({record.header("retry-id") for record in records}) == 1 for records in of_letter)


@pytest.mark.parametrize("restarts", [False, True], ids=["running", "started anew"])
def test_a_flood_of_another_team_has_no_letter_without_headers_sent_more_often(deploy: Deploy, restarts: bool) -> None:
    environ = {"RETRY_LINEAGES": str(LINEAGES)}
    deployment = deploy_teams(deploy, {"one": ["dropped"], "loud": ["flood"]}, **environ)
    dropped, flood = deployment.dead_letters
    long = deployment.policy_file.read_text().replace(f"dead_letters: {flood},", f"dead_letters: {flood}, {LATE},")
    deployment.policy_file.write_text(long)
    worker, consumers = deployment.worker().start().await_ready(), Consumers(deployment)
    letters, written = {(dropped, b"key %d" % n) for n in range(LETTERS)}, LETTERS
    for _, key in letters:
        consumers.sender.send(dropped, key, b"order of " + (key or b""))
    consumers.sender.finish()
    for times in range(1, MAX_ATTEMPTS + 1):
        consumers.consume(partial(consumers.are_sent, letters, times))
        for n in range(FLOOD):
            consumers.sender.send(flood, b"%d" % n, b"flood %d of %d" % (times, n))
        consumers.sender.finish()
        written += FLOOD
        await_that("the flood is taken in", lambda: worker.metric("retry_letters_read_total") == written)  # noqa: B023
        if restarts:
            worker.terminate()
            worker, written = worker.start().await_ready(), 0
        for _, key in letters:
            consumers.sender.send(dropped, key, b"order of " + (key or b""))
        consumers.sender.finish()
        written += LETTERS
    consumers.consume(partial(consumers.are_parked, letters), without_headers)
    consumers.quiet()
    assert consumers.counts() == dict.fromkeys(letters, MAX_ATTEMPTS)
    assert consumers.parked == dict.fromkeys(letters, "max_attempts")
