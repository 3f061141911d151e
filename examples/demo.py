"""All of it on one machine, in a minute: `python -m examples.demo`.

1. A real broker, its topics, one `retry worker`, and two consumers that fail for 15 of 100 orders; Spark starts beside them.
2. 2,000 orders and 500 invoices; what fails is dead-lettered, waits, comes back, and in the end is processed or parked.
3. Meanwhile the other ways in: recurring tasks, HTTP timers, scheduled messages; and the console, which shows all of it. Then the
   gateway is mended, and what was parked because of it is retried in steps.
4. `retry analytics report` begins. Meanwhile everything else is stopped, and Kafka is read from the beginning: each thing that
   must have happened did, once.
5. The report: tables, and a page that stays in `build/retry-report.html`. Its counts must be those of step 4, as those that the
   console shows. On a terminal worker, consumers and console then stay up for you to act, until Ctrl-C.

The exit code is 0 only if all of that is so.
"""

from __future__ import annotations

import os
import signal
import sys

if __name__ == "__main__":
    # Nothing has begun while modules are imported, which takes a second: leave at once, without a word.
    for _number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(_number, lambda number, _: os._exit(128 + number))

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from examples import mended, report, scheduler, tasks, timers
from examples.console import Console
from examples.ledger import KINDS, Event, Ledger, differences, expected, returned
from examples.lifetime import killed_on_failure, run_demo
from examples.screen import Screen
from examples.stage import DemoFailed, Stage
from retry.clock import Deadline, monotonic_s
from retry.jars import demand_java_of_spark
from retry.kafka.local_broker import LocalBroker

# For a busy machine, where Spark alone takes minutes.
_ALL_S = 900.0
_PRODUCE_S = 6.0
_ORDERS = {"orders": 2_000, "invoices": 500}
_IDS = {topic: [f"{topic[:-1]}-{n:06}" for n in range(number)] for topic, number in _ORDERS.items()}
_PARTITIONS = 3
_POLICIES = (Path(__file__).with_name("policies.yaml"), tasks.POLICIES)
_PAGE = Path("build/retry-report.html").absolute()


def main() -> NoReturn:
    """Run the demo, and end this process; the exit code is 0 if all checks passed."""
    deadline, screen = Deadline(_ALL_S), Screen()
    run_demo(lambda folder: _Demo(folder, screen, deadline).run(), screen.say)


class _Demo:
    """One run: starts the broker and the processes, and checks what they did."""

    def __init__(self, folder: Path, screen: Screen, deadline: Deadline) -> None:
        self._folder, self._screen, self._deadline = folder, screen, deadline
        order_ids = [order_id for ids in _IDS.values() for order_id in ids]
        self._expected, again = expected(order_ids), returned(order_ids)
        self._all = self._expected + again
        # Each comes back, and is processed.
        self._back = len(again) // 2

    def run(self) -> None:
        """All five steps.

        Raises:
          DemoFailed: something that the last screen claims did not happen.
          JavaUnavailable: the broker or Spark has none.
        """
        demand_java_of_spark()
        say = self._screen.part("demo")
        say("starting a Kafka broker")
        broker = LocalBroker(self._folder / "broker")
        servers = broker.bootstrap_servers
        pool = ThreadPoolExecutor(5)
        with ExitStack() as stack:
            receiver, webhooks = stack.enter_context(timers.receiving(self._folder))
            settings = self._settings(servers) | webhooks
            analytics = report.Analytics(stack.enter_context(Stage(self._folder, settings)), _PAGE)
            stack.enter_context(killed_on_failure(broker))
            service = stack.enter_context(Stage(self._folder, settings))
            shown = stack.enter_context(Stage(self._folder, settings | {"RETRY_DATA_DIR": str(self._folder / "console")}))
            schedules = stack.enter_context(Stage(self._folder, scheduler.settings(servers, self._folder / "scheduler")))
            with self._log_of_worker_on_failure(service):
                say("creating topics; starting a worker, a timers API, a scheduler, two teams' consumers")
                topics = self._start(service, schedules, servers)
                console = Console(shown)
                ways = [
                    pool.submit(console.await_ready, self._screen.part("console"), self._deadline),
                    pool.submit(tasks.play, service, servers, self._screen.part("tasks"), self._deadline),
                    pool.submit(timers.play, service, receiver, self._screen.part("timers"), self._deadline),
                    pool.submit(scheduler.play, schedules, servers, self._screen.part("schedules"), self._deadline),
                ]

                def mend() -> Future[None]:
                    return pool.submit(mended.play, service, _ORDERS, self._screen.part("act"), self._back, self._deadline)

                self._play_letters(service, servers, Ledger(servers, topics), ways, mend)
                analytics.begin()
                service.stop()
                schedules.stop()
                events = Ledger(servers, topics).read_to_end(self._deadline)
                if wrong := differences(self._all, events):
                    raise DemoFailed("\n  ".join(["Kafka does not hold what it must:", *wrong]))
                say("read anew: every order was processed or parked once, what was parked came back once")
                parked, _ = fates = self._parked_and_recovered(events)
                console.await_parked(parked, self._deadline)
                for line in analytics.answer(self._screen, self._deadline, fates):
                    self._screen.say(line)
            if self._screen.is_terminal:
                self._last_screen(events, "the console stays up")
                self._stay(service, servers, console)
        self._last_screen(events, "nothing is left running")

    def _settings(self, servers: str) -> dict[str, str]:
        policies = self._folder / "policies.yaml"
        policies.write_text("\n".join(file.read_text() for file in _POLICIES))
        return {
            "RETRY_BOOTSTRAP_SERVERS": servers,
            "RETRY_APP_ID": "demo",
            "RETRY_POLICIES": str(policies),
            "RETRY_DATA_DIR": str(self._folder / "worker"),
            "RETRY_SHARDS": "4",
            "RETRY_HTTP_ADDR": "127.0.0.1:0",
            "RETRY_CONSOLE_ADDR": "127.0.0.1:0",
            # All of it is over soon.
            "RETRY_POSITIONS_EVERY_S": "1",
        }

    def _start(self, service: Stage, schedules: Stage, servers: str) -> dict[str, int]:
        topics = _create_topics(servers)
        tasks.create_topics(servers)
        scheduler.create_topics(servers)
        service.run("topics", "create", deadline=self._deadline)
        self._start_letters(service, servers)
        service.start("api", "retry", "api")
        schedules.start("scheduler", "retry", "scheduler")
        for stage, part in ((service, "worker"), (service, "api"), (schedules, "scheduler")):
            stage.await_ready(part, self._deadline)
        return topics

    def _start_letters(self, service: Stage, servers: str) -> None:
        service.start("worker", "retry", "worker")
        for topic in _ORDERS:
            service.start(topic, "examples.orders", "--topic", topic, "--bootstrap-servers", servers)

    def _stay(self, service: Stage, servers: str, console: Console) -> None:
        """Let who looks at the console act, until Ctrl-C; then leave, with 0."""
        self._start_letters(service, servers)
        self._screen.say(f"\nOPEN {console.url} and retry, edit or discard what was parked; Ctrl-C ends all of it")
        console.keep(service.check)
        self._screen.say("stopped; nothing is left running")
        # All of it has been checked and shown: nothing has to end in order.
        sys.exit(0)

    def _play_letters(
        self, service: Stage, servers: str, ledger: Ledger, ways: list[Future[None]], mend: Callable[[], Future[None]]
    ) -> None:
        """Produce at an even pace and show what happens, until all events are there and the other ways in are done.

        Args:
          mend: called once all is parked that is to be.
        """
        # Quiet: where the demo is interrupted, the broker goes first.
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "log_level": 2})
        begun_s = monotonic_s()
        produced = dict.fromkeys(_IDS, 0)
        acting: list[Future[None]] = []
        with self._screen:
            while ledger.events.total() < self._all.total() or not all(way.done() for way in [*ways, *acting]):
                share = min(1.0, (monotonic_s() - begun_s) / _PRODUCE_S)
                for topic, ids in _IDS.items():
                    until = int(share * len(ids))
                    for order_id in ids[produced[topic] : until]:
                        producer.produce(topic, f'{{"id": "{order_id}"}}', order_id)
                    produced[topic] = until
                producer.poll(0)
                ledger.read(0.2)
                self._screen.show_letters(sum(produced.values()), ledger.counts())
                if not acting and ledger.events.total() >= self._expected.total():
                    acting.append(mend())
                self._check(service, ledger, [*ways, *acting])
            ledger.await_samples("demo", self._deadline)
        producer.flush(10)

    def _check(self, service: Stage, ledger: Ledger, ways: list[Future[None]]) -> None:
        service.check()
        for way in ways:
            if way.done():
                way.result()
        if self._deadline.has_passed():
            raise DemoFailed("\n  ".join(["time is up:", *differences(self._all, ledger.events)]))

    @contextmanager
    def _log_of_worker_on_failure(self, service: Stage) -> Iterator[None]:
        try:
            yield
        except Exception:
            self._screen.say(f"end of the worker's log:\n{service.tail('worker')}")
            raise

    def _parked_and_recovered(self, events: Counter[Event]) -> tuple[int, int]:
        """In the end: what was returned was parked before, and has recovered."""
        parked = sum(kind == "parked" for kind, _, _ in events)
        return parked - self._back, sum(kind == "processed" and made != 0 for kind, _, made in events)

    def _last_screen(self, events: Counter[Event], left: str) -> None:
        parked, recovered = self._parked_and_recovered(events)
        took_s = _ALL_S - self._deadline.remaining_s()
        self._screen.say(f"""
SHOWN in {took_s:.0f} s on a real broker, checked record by record; {left}
  letters    {sum(_ORDERS.values()):,} orders: {recovered} failed and recovered, {parked} parked, none lost, no retry sent twice
  act        {self._back} of those that recovered were parked first, and retried in steps when their cause was mended
  tasks      one a second, one by cron, one once; changed and deleted while they ran
  timers     webhooks signed and in time, one called again after a 503, one ended in time
  schedules  sent at their second, replaced, cancelled
  console    what failed, why, and what became of it: the same numbers
  report     {_PAGE}
NEXT
  retry console                        the page of the demo, of your own letters
  retry analytics report --text        the report above, of your own topics
  retry inspect --topic YOUR.DLT       what would become of your own dead letters; it only reads
  docs/tutorial/first-retry.md         the same by hand, step by step, with your own consumer""")


def _create_topics(servers: str) -> dict[str, int]:
    # Where the broker stamps a retry, the report can say how late it was.
    appended = {"message.timestamp.type": "LogAppendTime"}
    names = [f"{topic}{suffix}" for topic in _ORDERS for suffix in ("", *(f".{kind}" for kind in KINDS))]
    new = [NewTopic(n, _PARTITIONS, 1, config=appended if n.endswith(".retry") else {}) for n in names]
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    for done in admin.create_topics(new).values():
        done.result(20)
    return {name: _PARTITIONS for name in names if name not in _ORDERS}


if __name__ == "__main__":
    main()
