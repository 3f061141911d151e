"""An incident on a real broker, for the console: letters of two teams that wait, came back and were parked, and a worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from confluent_kafka import Consumer, Message

from retry.clock import wall_ms
from tests.support.deployment import ROOT, Deployment
from tests.support.letters import Headers, Sender
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import COMMITTED, QUIET

_WORD, GROUP = "kafka_dlt-", "payments-service"
_MINUTE_MS = 60_000
GATEWAY, DECLINED = "com.acme.pay.GatewayTimeout", "com.acme.pay.CardDeclined"
DATABASE, NET = "org.postgresql.util.PSQLException", "java.net.SocketTimeoutException"
WAITING = {GATEWAY: 30, DATABASE: 8}
PARKED = {DECLINED: 12}
RETRIED, CAME_BACK = 6, 2
# In every text that a record may bring; `ran` is looked for in the page.
HOSTILE = (
    "<script>document.title='ran'</script>",
    "\"><img src=x onerror=\"document.title='ran'\">",
    "'-alert(1)-'",
    "</td></table><svg onload=document.title='ran'>",
    "javascript:alert(1)",
    "{{ 7 * 191 }}{% raw %}${7*191}",
    "<a hx-get=/audit hx-trigger=load>x</a>",
    "</script><style>*{display:none}</style>",
    "\u202edrowssap\u2066 \x1b[2J\u200b",
    "&lt;b&gt;&amp;&#x3c;script&#x3e;",
    "x" * 3_000,
    "data: evil\n\nevent: live\ndata: <script>document.title='ran'</script>",
)


class Incident:
    """A deployment with a worker, letters in every state, and the console that shows them.

    Args:
      hostile: whether there are letters whose every text is one of `HOSTILE`, too.
      alone: whether nobody else uses the broker: topics are `payments.orders.DLT` and `orders.stock.DLT` then.
      environ: more settings of the console.

    Attributes:
      url: where the console is, which has read all of it.
    """

    def __init__(
        self, bootstrap_servers: str, folder: Path, *, hostile: bool = False, alone: bool = False, **environ: str
    ) -> None:
        often = {"RETRY_POSITIONS_EVERY_S": "1"}
        topics = {"payments.orders": 2, "orders.stock": 2} if alone else {"payments": 2, "orders": 2}
        self.deployment = Deployment(bootstrap_servers, folder, topics, environ=often, alone=alone)
        self.payments, self.orders = self.deployment.dead_letters
        self._dead_letters_of = {self.deployment.retry_of(topic): topic for topic in self.deployment.dead_letters}
        self.deployment.policy_file.write_text(self.policies())
        self.deployment.prepare()
        self.worker = self.deployment.worker().start().await_ready()
        self._sender = Sender(bootstrap_servers)
        self._fail()
        if hostile:
            self._fail_with_hostile_texts()
        self._sender.finish()
        self._come_back()
        self.console = console(self.deployment, **environ)
        self.url = f"http://127.0.0.1:{self.console.port()}"

    def policies(self, orders_delay: str = "30m") -> str:
        """Write the policy file of the incident."""
        retry_to = self.deployment.retry_of
        return f"""
defaults: {{jitter: none, max_attempts: 5, max_age: 2d}}
teams:
  payments:
    topics:
      - dead_letters: {self.payments}
        retry_to: {retry_to(self.payments)}
        park_to: {self.deployment.parked}
        allowed_targets: [{retry_to(self.payments)}, {retry_to(self.orders)}, {self.deployment.parked}]
        group: {GROUP}
        backoff: {{kind: constant, delay: 2h, max_delay: 2h}}
        rules:
          - {{exception: '*.CardDeclined', park: true}}
          - {{exception: '*.SocketTimeoutException', backoff: {{kind: constant, delay: 1s}}}}
  orders:
    topics:
      - dead_letters: {self.orders}
        retry_to: {retry_to(self.orders)}
        allowed_targets: [{retry_to(self.orders)}, {retry_to(self.payments)}]
        backoff: {{kind: constant, delay: {orders_delay}}}
"""

    def _fail(self) -> None:
        now_ms = wall_ms()
        for n in range(WAITING[GATEWAY]):
            self.fail(self.payments, GATEWAY, f"no answer for order-{n:06} within 200 ms", n, now_ms - 3 * n * _MINUTE_MS)
        for n in range(WAITING[DATABASE]):
            self.fail(self.orders, DATABASE, f"deadlock detected: process {900 + n}", n, now_ms - 2 * n * _MINUTE_MS)
        for n in range(PARKED[DECLINED]):
            self.fail(self.payments, DECLINED, f"card of customer {n} was declined", n, now_ms)
        for n in range(RETRIED):
            self.fail(self.payments, NET, f"read timed out after {n} ms", 100 + n, now_ms)

    def fail(self, topic: str, exception: str, message: str, n: int, failed_ms: int) -> None:
        """Send one more letter that failed."""
        customer = {"name": "Jane Doe", "card": f"4111-1111-{n:04}"}
        value = json.dumps({"order": f"order-{n:06}", "amount": n * 10 + 1, "customer": customer}).encode()
        headers = spring(topic, exception, message, n)
        self._sender.send(topic, f"order-{n:06}".encode(), value, headers, timestamp_ms=failed_ms)

    def flush(self) -> None:
        """Wait until what failed is on the broker."""
        self._sender.finish()

    def _fail_with_hostile_texts(self) -> None:
        for n, text in enumerate(HOSTILE):
            headers = [*spring(text, text, text, n), (text[:200], text.encode())]
            self._sender.send(self.payments, text.encode(), text.encode(), headers)
            self._sender.send(self.orders, text.encode(), json.dumps({text: [text]}).encode(), headers)

    def _come_back(self) -> None:
        """A consumer reads the retries; some of them fail once more, and are well then."""
        group = self._group()
        self._consume(group, RETRIED, failing=CAME_BACK)
        self._consume(group, CAME_BACK, failing=0)
        group.close()

    def _group(self) -> Consumer:
        group = Consumer({
            "bootstrap.servers": self.deployment.bootstrap_servers, "group.id": GROUP, "isolation.level": COMMITTED,
            "enable.auto.commit": False, "auto.offset.reset": "earliest", "logger": QUIET,
        })  # fmt: skip
        group.subscribe(list(self._dead_letters_of))
        return group

    def _consume(self, group: Consumer, count: int, failing: int) -> None:
        found: list[Message] = []

        def came() -> bool:
            found.extend(message for message in group.consume(count, 0.5) if message.error() is None)
            return len(found) >= count

        await_that("retries came", came)
        for record in found[:failing]:
            self._sender.send(self.payments, record.key(), record.value(), record.headers() or [])
        self._sender.finish()
        group.commit(asynchronous=False)

    @contextmanager
    def consuming(self, failing: Callable[[Message], bool] = lambda _record: False) -> Iterator[None]:
        """Consumers read what comes back, and commit; of what they fail for, a dead letter is written again."""
        stop, group = Event(), self._group()

        def consume() -> None:
            while not stop.is_set():
                records = [each for each in group.consume(100, 0.1) if each.error() is None]
                for record in filter(failing, records):
                    topic = self._dead_letters_of[record.topic() or ""]
                    self._sender.send(topic, record.key(), record.value(), record.headers() or [])
                if records:
                    group.commit(asynchronous=False)
            group.close()

        thread = Thread(target=consume)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def close(self) -> None:
        self.deployment.close()


# What calls every listener of Spring.
_CONTAINER = (
    "org.springframework.kafka.listener.adapter.HandlerAdapter.invoke(HandlerAdapter.java:78)",
    "org.springframework.kafka.listener.KafkaMessageListenerContainer$ListenerConsumer.run(KafkaMessageListenerContainer.java:1413)",
    "java.base/java.lang.Thread.run(Thread.java:840)",
)


def spring(topic: str, exception: str, message: str, n: int) -> Headers:
    """Headers of a letter as Spring Kafka writes them, with a stack whose top is where the exception was raised."""
    calls = ("Gateway.capture" if n % 3 else "Gateway.refund", "Checkout.pay", "Listener.onMessage")
    frames = "\n".join(f"\tat com.acme.{call}({call.partition('.')[0]}.java:{40 + n % 2})" for call in calls)
    frames += "".join(f"\n\tat {call}" for call in _CONTAINER)
    return [
        (f"{_WORD}original-topic", topic.removesuffix(".DLT").encode()),
        (f"{_WORD}original-partition", (0).to_bytes(4, "big")),
        (f"{_WORD}original-offset", n.to_bytes(8, "big")),
        (f"{_WORD}original-consumer-group", GROUP.encode()),
        (f"{_WORD}exception-fqcn", exception.encode()),
        (f"{_WORD}exception-message", message.encode()),
        (f"{_WORD}exception-stacktrace", f"{exception}: {message}\n{frames}".encode()),
        ("trace-id", b"4bf92f3577b34da6a3ce929d0e0e4736"),
    ]


def console(deployment: Deployment, root: Path = ROOT, **environ: str) -> WorkerProcess:
    """The console of a deployment, which has read what is there; `root` is the tree whose code it runs."""
    process = WorkerProcess("console", deployment.folder, deployment.environ | {"RETRY_CONSOLE_ADDR": "127.0.0.1:0"})
    process.root = root
    deployment.workers["console"] = process
    return process.start("-m", "retry", "console", **environ).await_ready()
