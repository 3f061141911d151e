"""Hostile records by every door beside good letters: all good ones come back once and in time, no hostile one vanishes.

A worker, an API and a scheduler run throughout. What is printed: the seed, how late good letters were, and memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaError, Message, Producer

from retry.clock import wall_ms
from retry.dead_letters import retry_headers as names
from retry.delay_queue import entry_keys, envelopes
from retry.scheduling.messages.schedule_request import SOURCE as SCHEDULE_SOURCE
from tests.bench.machine import rss_mb
from tests.conftest import Deploy, Schedulings
from tests.support.checker import fold, verify_deployment
from tests.support.deployment import APPEND_TIME, Deployment
from tests.support.hostile import LETTER, SCHEDULE, TASK, TIMER, Generator, Hostile
from tests.support.letters import Letter, Sender
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import COMMITTED, QUIET, Record, read
from tests.support.scheduler import Scheduling
from tests.support.timers import Api

pytestmark = pytest.mark.check

MB = 1 << 20
LARGE = {"max.message.bytes": str(8 * MB)}
NARROW = {"max.message.bytes": str(32 << 10)}
OUT = ("good.retry", "hostile.retry", "narrow.retry", "missing.retry", "origin")
# A batch of letters of megabytes is in memory several times on its way: client, letter, envelope, producer.
MEMORY_MB_MAX = 900
_WITHIN_S = 240.0


class Mixed(Deployment):
    """A team that does as it should, one that does not, and tasks."""

    def _policies(self, defaults: str, topic_keys: str) -> str:
        def topic(name: str, target: str, more: str = "") -> str:
            return f"      - {{dead_letters: {self.app_id}.{name}.DLT, retry_to: {target}{more}}}\n"

        parks = f", park_to: {self.parked}"
        plain = "".join(topic(name, f"{self.app_id}.{name}.retry", parks) for name in ("hostile", "narrow", "missing"))
        origin = topic("origin", "origin", f"{parks}, allowed_targets: [{self.app_id}.origin, {self.parked}]")
        tasks = f"topics: [{self.app_id}.tasks], allowed_targets: [{self.app_id}.runs], park_to: {self.parked}, shortest: 1h"
        return (
            f"defaults: {{backoff: {{kind: constant, delay: 500ms, max_delay: 2s}}, jitter: none}}\nteams:\n"
            f"  good:\n    topics:\n{topic('good', f'{self.app_id}.good.retry')}"
            f"  hostile:\n    topics:\n{plain}{origin}tasks: {{{tasks}}}\n"
        )


class Running(NamedTuple):
    """All processes of one run, and what was sent."""

    deployment: Mixed
    scheduling: Scheduling
    worker: WorkerProcess
    api: Api
    scheduler: WorkerProcess


@pytest.fixture
def running(deploy: Deploy, scheduling: Schedulings, request: pytest.FixtureRequest) -> Iterator[Running]:
    """Started side by side, and ready."""
    broker, folder = request.getfixturevalue("broker"), request.getfixturevalue("tmp_path")
    made = Mixed(broker.bootstrap_servers, folder / "mixed", {"spare": 1}, environ={"RETRY_CALL_TIMEOUT_MS": "1500"})
    made.create({
        **{f"{made.app_id}.{name}": (2, LARGE) for name in ("hostile.DLT", "narrow.DLT", "missing.DLT", "origin.DLT", "tasks")},
        # By the broker's clock, what a client held back is not late.
        f"{made.app_id}.good.DLT": (4, APPEND_TIME), f"{made.app_id}.good.retry": (4, APPEND_TIME),
        f"{made.app_id}.hostile.retry": (2, {}), f"{made.app_id}.narrow.retry": (1, NARROW), f"{made.app_id}.origin": (1, {}),
        f"{made.app_id}.runs": (1, {}),
    })  # fmt: skip
    made.prepare()
    schedules = scheduling(2, SCHEDULE_GRACE_INTERVAL="60")
    # A compacted topic would take none without a key, and no other of the same batch.
    schedules.schedules += ".plain"
    schedules.create({schedules.schedules: LARGE})
    schedules.environ |= {"SCHEDULER_ALLOWED_TARGETS": schedules.target, "SCHEDULES_TOPICS": schedules.schedules}
    try:
        worker, api = made.worker().start(), Api(made)
        api.start()
        scheduler = schedules.instance()
        yield Running(made, schedules, worker.await_ready(), api, scheduler)
    finally:
        print(worker.tail())
        made.close()


class Wave:
    """Sends hostile records where they belong, and remembers those that a broker took."""

    def __init__(self, running: Running) -> None:
        self.taken: dict[str, dict[str, Hostile]] = defaultdict(dict)
        self.answers: Counter[int] = Counter()
        self.unanswered: list[str] = []
        self._running = running
        self._producer = Producer({
            "bootstrap.servers": running.deployment.bootstrap_servers, "message.max.bytes": 8 * MB, "linger.ms": 5,
            "queue.buffering.max.kbytes": 256 << 10, "enable.idempotence": True, "logger": QUIET,
        })  # fmt: skip

    def send(self, one: Hostile) -> None:
        """Send one, or ask for it."""
        if one.source == TIMER:
            code, told, _ = self._running.api.ask("POST", "/timers", one.value)
            self.answers[code] += 1
            if not (code == HTTPStatus.CREATED or 400 <= code < 500):
                self.unanswered.append(f"{code}: {one.value!r:.200} {told!r:.200}")
            return
        app_id, suffix = self._running.deployment.app_id, ".DLT" if one.source == LETTER else ""
        topic = self._running.scheduling.schedules if one.source == SCHEDULE else f"{app_id}.{one.topic}{suffix}"

        def told(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            self.taken[one.source][f"{message.topic()}/{message.partition()}/{message.offset()}"] = one

        while True:
            try:
                self._producer.produce(topic, one.value, one.key, on_delivery=told, headers=list(one.headers))
            except BufferError:
                self._producer.poll(0.1)
            else:
                break
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait until all are taken."""
        assert self._producer.flush(_WITHIN_S) == 0


def beside_each_other(
    running: Running, seed: int, hostile: int, good_per_s: int, seconds: float
) -> tuple[Wave, dict[str, Letter]]:
    """Send both at an even pace; what was taken of either."""
    deployment, wave, sender = running.deployment, Wave(running), Sender(running.deployment.bootstrap_servers)
    own = [*deployment.names[:4], f"{deployment.app_id}.good.retry", f"{deployment.app_id}.hostile.DLT", deployment.parked]
    records = Generator(seed, own, [f"{deployment.app_id}.runs"], running.scheduling.target).records(hostile)
    pacer = Sender(deployment.bootstrap_servers)

    def good(n: int) -> None:
        sender.send(f"{deployment.app_id}.good.DLT", b"key %d" % (n % 100), b"good %d" % n, timestamp_ms=wall_ms())

    with ThreadPoolExecutor(1) as beside:
        steady = beside.submit(sender.paced, int(good_per_s * seconds), seconds, good)
        pacer.paced(hostile, seconds, lambda _n: wave.send(next(records)))
        wave.finish()
        steady.result()
    return wave, sender.finish()


def test_hostile_records_by_every_door_and_good_letters_all_have_an_end(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    redecider(running, capsys, seed=20, hostile=1_000, good_per_s=200, seconds=6.0)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("seed", [1, 2])
def test_10000_hostile_records_leave_1000_good_letters_a_second_on_time(
    running: Running, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    p99_ms = redecider(running, capsys, seed=seed, hostile=10_000, good_per_s=1_000, seconds=60.0)
    assert p99_ms < 2_000


def first_letters(deployment: Deployment) -> dict[str, Letter]:
    """A few good letters, which are back: a broker's first transactions take seconds and say nothing of hostile records."""
    sender, topic = Sender(deployment.bootstrap_servers), f"{deployment.app_id}.good"
    for n in range(40):
        sender.send(f"{topic}.DLT", b"first %d" % n, b"first %d" % n, timestamp_ms=wall_ms())
    sent, retries = sender.finish(), [f"{topic}.retry"]
    await_that("the first are back", lambda: len(read(deployment.bootstrap_servers, retries, COMMITTED)) >= len(sent), _WITHIN_S)
    return sent


def redecider(
    running: Running, capsys: pytest.CaptureFixture[str], *, seed: int, hostile: int, good_per_s: int, seconds: float
) -> int:
    """Send both, and find every one of them; 99 of 100 good letters are no later than this."""
    deployment, worker = running.deployment, running.worker
    at_rest_mb, pid = rss_mb(worker.pid), worker.pid
    first = first_letters(deployment)
    wave, later = beside_each_other(running, seed, hostile, good_per_s, seconds)
    good = first | later
    deployment.create({f"{deployment.app_id}.missing.retry": (1, {})})
    letters, tasks, schedules = (wave.taken[source] for source in (LETTER, TASK, SCHEDULE))
    await_that("all letters have an end", lambda: count_taken(worker, "good", "hostile") == len(letters) + len(good), _WITHIN_S)
    await_that("all tasks are taken in", lambda: count_taken(worker, "tasks") == len(tasks), _WITHIN_S)
    out = await_out(deployment, len(letters) + len(good) + int(count_taken(worker, "tasks", became="park")))
    late_ms, most_mb = lateness_ms(out, first), rss_mb(worker.pid, "VmHWM")
    at = {share: late_ms[len(late_ms) * share // 100] for share in (50, 99)}
    with capsys.disabled():
        print(f"\nseed {seed}: {hostile:,} hostile beside {good_per_s:,} good letters/s, late by ms: {at}, {late_ms[-1]}")
        print(f"  the worker's memory: {at_rest_mb:.0f} MB at rest, {most_mb:.0f} MB at most; timers {dict(wave.answers)}")
        print(f"  parked: {dict(Counter(reasons(out)))}")
    assert changed_or_lost(deployment, good, letters, out) == []
    assert tasks_lost(tasks, out, int(count_taken(worker, "tasks", became="park"))) == []
    await_schedules(running, schedules)
    assert wave.unanswered[:5] == []
    assert (worker.running(), worker.pid, most_mb < MEMORY_MB_MAX) == (True, pid, True)
    logs = {each.name: each.log() for each in (worker, running.api.process, running.scheduler)}
    assert [name for name, log in logs.items() if "Traceback" in log or not log.replace("\n", "").isprintable()] == []
    assert verify_deployment(deployment)["findings"] == {}
    return at[99]


def count_taken(worker: WorkerProcess, *teams: str, became: str = "") -> float:
    """How many records of teams were taken in, or became this."""
    found = 0.0
    for line in worker.get("/metrics")[1].splitlines():
        of_teams = any(f'team="{team}"' in line for team in teams)
        if line.startswith("retry_letters_consumed_total{") and of_teams and became in line:
            found += float(line.rsplit(" ", 1)[1])
    return found


def await_out(deployment: Deployment, count: int) -> list[Record]:
    """All that came out, once there is that much of it."""
    topics = [*(f"{deployment.app_id}.{name}" for name in OUT), deployment.parked, deployment.names.parked]
    found: list[Record] = []

    def all_out() -> bool:
        found[:] = read(deployment.bootstrap_servers, topics, COMMITTED)
        return len(found) >= count

    await_that(f"{count} came out", all_out, _WITHIN_S)
    return found


def lateness_ms(out: Sequence[Record], first: Collection[str]) -> list[int]:
    """From due to the broker's time, of good letters but for the first, sorted."""
    good = (r for r in out if r.topic.endswith(".good.retry") and r.header(names.SOURCE) not in first)
    return sorted(r.timestamp_ms - int(r.header(names.DUE_MS)) for r in good)


def reasons(out: Sequence[Record]) -> list[str]:
    """Why what was parked was parked."""
    return [reason for record in out if (reason := record.header(names.PARKED_REASON))]


def changed_or_lost(
    deployment: Deployment, good: dict[str, Letter], hostile: dict[str, Hostile], out: Sequence[Record]
) -> list[str]:
    """Letters that did not come out once, as they were."""
    came: dict[str, list[Record]] = defaultdict(list)
    for record in out:
        if source := record.header(names.SOURCE):
            came[source].append(record)
    wrong = [f"{source}: {len(came[source])} times" for source in (*good, *hostile) if len(came[source]) != 1]
    wrong += [f"{source} was never sent" for source in came.keys() - good.keys() - hostile.keys()]
    wrong += [
        f"{source} was good" for source in good if any(not as_good(deployment, good[source], each) for each in came[source])
    ]
    wrong += [f"{source}: {why}" for source, one in hostile.items() for each in came[source] if (why := difference(one, each))]
    return wrong[:20]


def as_good(deployment: Deployment, letter: Letter, record: Record) -> bool:
    """Whether a good letter came back where and as it should."""
    return (record.topic, record.key, record.value) == (f"{deployment.app_id}.good.retry", letter.key, letter.value)


def difference(one: Hostile, record: Record) -> str:
    """Describe what is not as it was written, or where it should not be."""
    parked, is_parked = record.header(names.PARKED_REASON), record.topic.endswith(("parked", ".parked"))
    if bool(parked) != is_parked:
        return f"on {record.topic} for reason {parked!r}"
    theirs = [header for header in one.headers if header[0] not in names.OURS]
    if parked == "too_large":
        return "" if record.value is None else "too large, and with its value"
    same = (record.key, record.value, record.headers[: len(theirs)]) == (one.key, one.value, theirs)
    return "" if same else f"changed ({parked or 'retried'}): {one!r:.300}"


def tasks_lost(tasks: dict[str, Hostile], out: Sequence[Record], parked_count: int) -> list[str]:
    """Definitions that were parked in another way than once, with a reason, as they were."""
    parked = {record.header(names.TASK_SOURCE): record for record in out if record.header(names.TASK_SOURCE)}
    wrong = [] if len(parked) == parked_count else [f"{len(parked)} were parked, not {parked_count}"]
    for source, record in parked.items():
        one, reason = tasks[source], record.header(names.PARKED_REASON)
        if not reason or (reason != "too_large" and (record.key, record.value) != (one.key, one.value)):
            wrong.append(f"{source}: {record!r:.300}")
    return wrong


def await_schedules(running: Running, schedules: dict[str, Hostile]) -> None:
    """Wait until each was sent, is parked with a reason, or waits for the year 9999; one of these, and once."""
    scheduling, left = running.scheduling, list[str]()

    def all_ended() -> bool:
        sent = Counter(dict(record.headers)["scheduler-key"] for record in scheduling.sent())
        parked = Counter(r.header(SCHEDULE_SOURCE) for r in scheduling.read(scheduling.names.parked) if reasons([r]))
        ends = sent + still_waiting(scheduling)
        left[:] = [source for source, one in schedules.items() if ends[one.key] + parked[source] != 1]
        return not left

    try:
        await_that("every schedule has an end", all_ended, _WITHIN_S)
    except AssertionError:
        shown = [f"{source}: {schedules[source]!r:.300}" for source in left[:5]]
        raise AssertionError(f"{len(left)} schedules have no end, or two: {shown}") from None


def still_waiting(scheduling: Scheduling) -> Counter[bytes | None]:
    """Keys of schedules that wait, each with the tombstone that will end it."""
    found = fold(scheduling.read(scheduling.names.changelog)).items()
    named = [
        envelopes.decode_named(value)
        for key, value in found
        if value is not None and entry_keys.lane_of(key) != entry_keys.CANCEL
    ]
    return Counter(entry.also[-1].key for entry in named if entry.destination == scheduling.target)
