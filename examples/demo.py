"""All of it on one machine, in three minutes: `python -m examples.demo`.

1. A real broker, its topics, one `retry worker`, and two consumers that fail for 15 of 100 orders.
2. 2,000 orders and 500 invoices; what fails is dead-lettered, waits, comes back, and in the end is processed or parked.
3. Everything is stopped, and Kafka is read from the beginning: each thing that must have happened did, once.
4. Each of the other doors: recurring tasks, HTTP timers, scheduled messages; see `examples.doors`.
5. `retry report` over the outcomes of the letters, and `retry analytics report`, whose page stays in `build/retry-report.html`.

The exit code is 0 only if the third step finds nothing missing and nothing twice, and each door did what it must.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from examples import doors
from examples.ledger import KINDS, Ledger, differences, expected
from examples.screen import Screen
from examples.stage import DemoFailed, Stage
from retry.clock import Deadline, monotonic_s
from retry.errors import RetryError
from retry.kafka.local_broker import LocalBroker

_ALL_S = 300.0
_PRODUCE_S = 15.0
_ORDERS = {"orders": 2_000, "invoices": 500}
_PARTITIONS = 3
_POLICIES = Path(__file__).with_name("policies.yaml")
_PAGE = Path("build/retry-report.html").absolute()


def main() -> int:
    """Run the demo; 0 if all went as it must."""
    # So that ending this process ends its children too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    deadline, screen = Deadline(_ALL_S), Screen()
    try:
        with tempfile.TemporaryDirectory(prefix="retry-demo-") as folder:
            _on_a_broker(Path(folder), screen, deadline)
    except (DemoFailed, RetryError, KafkaException) as failed:
        screen.say(f"FAILED: {failed}")
        return 1
    except KeyboardInterrupt:
        screen.say("stopped; nothing is left running")
        return 130
    screen.say(f"\nall as it must be, after {_ALL_S - deadline.remaining_s():.0f} s; nothing is left running")
    return 0


def _on_a_broker(folder: Path, screen: Screen, deadline: Deadline) -> None:
    screen.say("starting a Kafka broker")
    with LocalBroker(folder / "broker") as broker:
        settings = {
            "RETRY_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "RETRY_APP_ID": "demo",
            "RETRY_POLICIES": str(_POLICIES),
            "RETRY_DATA_DIR": str(folder / "worker"),
            "RETRY_SHARDS": "4",
            "RETRY_HTTP_ADDR": "127.0.0.1:0",
            # All of it is over soon.
            "RETRY_POSITIONS_EVERY_S": "1",
        }
        with Stage(folder, settings) as stage:
            try:
                _play(stage, broker.bootstrap_servers, screen, deadline)
                doors.show(folder, broker.bootstrap_servers, screen, deadline)
                screen.say("\nasking Spark for a report on the letters\n")
                screen.say(stage.run("report", deadline=deadline))
                # All consumers have come to the end: what was to fail again has.
                _PAGE.parent.mkdir(exist_ok=True)
                page = stage.run("analytics", "report", "--settle", "1s", "--html", str(_PAGE), deadline=deadline)
                screen.say(f"the same with plots, and which retries are worth making: {page.strip()}")
            except Exception:
                screen.say(f"end of the worker's log:\n{stage.tail('worker')}")
                raise


def _play(stage: Stage, servers: str, screen: Screen, deadline: Deadline) -> None:
    screen.say("creating the topics, starting a worker and the consumers of orders and invoices")
    topics = _create_topics(servers)
    stage.run("topics", "create", deadline=deadline)
    stage.start("worker", "retry", "worker")
    stage.await_ready("worker", deadline)
    for topic in _ORDERS:
        stage.start(topic, "examples.orders", "--topic", topic, "--bootstrap-servers", servers)
    order_ids = {topic: [f"{topic[:-1]}-{n:06}" for n in range(number)] for topic, number in _ORDERS.items()}
    wanted = expected(order_id for ids in order_ids.values() for order_id in ids)
    _perform(stage, servers, Ledger(servers, topics), screen, order_ids, wanted.total(), deadline)
    stage.stop()
    found = Ledger(servers, topics).read_to_end(deadline)
    if wrong := differences(wanted, found):
        raise DemoFailed("\n  ".join(["Kafka has not what it must:", *wrong]))
    screen.say("every order was processed once or parked once, and no retry came twice")


def _create_topics(servers: str) -> dict[str, int]:
    # Where the broker stamps a retry, the report can say how late it was.
    appended = {"message.timestamp.type": "LogAppendTime"}
    names = [f"{topic}{suffix}" for topic in _ORDERS for suffix in ("", *(f".{kind}" for kind in KINDS))]
    new = [NewTopic(n, _PARTITIONS, 1, config=appended if n.endswith(".retry") else {}) for n in names]
    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.create_topics(new).values():
        done.result(20)
    return {name: _PARTITIONS for name in names if name not in _ORDERS}


def _perform(
    stage: Stage, servers: str, ledger: Ledger, screen: Screen, order_ids: dict[str, list[str]], events: int,
    deadline: Deadline,
) -> None:  # fmt: skip
    """Produce at an even pace and watch, until as many things happened as must."""
    # Quiet: where the demo is interrupted, the broker goes first.
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "log_level": 2})
    begun_s = monotonic_s()
    produced = dict.fromkeys(order_ids, 0)
    with screen:
        while ledger.events.total() < events:
            share = min(1.0, (monotonic_s() - begun_s) / _PRODUCE_S)
            for topic, ids in order_ids.items():
                until = int(share * len(ids))
                for order_id in ids[produced[topic] : until]:
                    producer.produce(topic, f'{{"id": "{order_id}"}}', order_id)
                produced[topic] = until
            producer.poll(0)
            ledger.read(0.2)
            stage.check()
            screen.show(sum(produced.values()), ledger.counts())
            if deadline.passed():
                wanted = expected(order_id for ids in order_ids.values() for order_id in ids)
                raise DemoFailed("\n  ".join(["time is up:", *differences(wanted, ledger.events)]))
    producer.flush(10)


if __name__ == "__main__":
    sys.exit(main())
