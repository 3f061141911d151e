"""Letters of many kinds of failures, written to the changelog as an intake writes them: what the console has to look through."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from confluent_kafka import Producer

from retry.dead_letters import retry_headers as names
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Entry
from retry.record import Headers
from retry.telemetry import fingerprint, outcomes
from retry.telemetry.outcomes import LettersByShared, SharedFields

from .letters import Incorrect, letter, producer
from .service import Service, now_ms
from .waiting import shard

DAY_MS = 86_400_000
_IN_TRANSACTION, _COMMIT_S = 20_000, 120.0
_SCATTER = 2_654_435_761
_EXCEPTIONS = (
    "java.net.SocketTimeoutException", "com.acme.GatewayTimeout", "org.postgresql.util.PSQLException",
    "java.lang.IllegalStateException", "com.acme.CardDeclined",
)  # fmt: skip
_TENANTS, _ATTEMPTS = 100, 3
_WRAPPER = b"org.springframework.kafka.listener.ListenerExecutionFailedException"
_FRAMES = b"".join(b"\tat com.acme.orders.Stage%d.handle(Stage%d.java:%d)\n" % (n, n, n) for n in range(12))
_BEGAN_MS = now_ms()


def fill(service: Service, size: int) -> None:
    """So many letters wait, due over the next day, in no order.

    Raises:
      Incorrect: not everything could be written.
    """
    to = producer(service.bootstrap, **{"transactional.id": f"{service.names.intake_group}-fill", "compression.type": "lz4"})
    to.init_transactions(_COMMIT_S)
    for first in range(0, size, _IN_TRANSACTION):
        to.begin_transaction()
        write(to, service, range(first, min(first + _IN_TRANSACTION, size)))
        to.commit_transaction(_COMMIT_S)


def write(to: Producer, service: Service, numbers: range) -> None:
    """Entries of these letters, in the transaction that is open."""
    shards: list[list[dict[str, bytes | None]]] = [[] for _ in range(service.shards)]
    for number in numbers:
        shards[_shard(number, service)].append({"key": _key(number, service), "value": _envelope(number, service)})
    _produce(to, service, shards)


def end(to: Producer, service: Service, numbers: range) -> None:
    """These letters wait no more."""
    shards: list[list[dict[str, bytes | None]]] = [[] for _ in range(service.shards)]
    for number in numbers:
        shards[_shard(number, service)].append({"key": _key(number, service), "value": None})
    _produce(to, service, shards)


def tell(to: Producer, service: Service, numbers: range) -> None:
    """What was decided on these letters."""
    by_shared: LettersByShared = defaultdict(list)
    taken_ms = now_ms()
    for number in numbers:
        team, topic = _of(number, service)
        cause, message = _EXCEPTIONS[number % len(_EXCEPTIONS)], _message(number).decode()
        shared = SharedFields(
            team, topic, 0, f"{team}/{topic}", 1 + number % _ATTEMPTS, _WRAPPER.decode(), "retry", None, service.retries, cause,
            fingerprint.of(_WRAPPER.decode(), cause, message), "orders",
        )  # fmt: skip
        by_shared[shared].append((b"%016x" % number, number, taken_ms - DAY_MS // 2, taken_ms, _due_ms(number)))
    for value in outcomes.records(by_shared, taken_ms):
        to.produce(service.names.outcomes, value, partition=numbers.start % service.shards)


def moment_s(iso: str | None) -> float:
    """Seconds since 1970 of a time as the API tells it; long ago where it tells none."""
    return 0.0 if iso is None else datetime.fromisoformat(iso).timestamp()


def _produce(to: Producer, service: Service, shards: list[list[dict[str, bytes | None]]]) -> None:
    for partition, rows in enumerate(shards):
        if rows and to.produce_batch(service.names.changelog, rows, partition) != len(rows):
            raise Incorrect("the changelog did not take all entries")


def _of(number: int, service: Service) -> tuple[str, str]:
    teams = list(service.of_team.items())
    return teams[number % len(teams)]


def _shard(number: int, service: Service) -> int:
    return shard(b"order-%09d" % number, service.shards)


def _due_ms(number: int) -> int:
    return _BEGAN_MS + 60_000 + number * _SCATTER % DAY_MS


def _key(number: int, service: Service) -> bytes:
    team, topic = _of(number, service)
    lane = entry_keys.lane(team, topic, service.retries)
    return entry_keys.key(_due_ms(number), entry_keys.key_stem(topic, 0), number, lane)


def _message(number: int) -> bytes:
    return b"%s: order %d of customer %d could not be charged: card declined" % (
        (b"alpha", b"beta", b"gamma", b"delta")[number % 4], number, number * 7 % 1_000_003,
    )  # fmt: skip


def _envelope(number: int, service: Service) -> bytes:
    team, topic = _of(number, service)
    cause, message = _EXCEPTIONS[number % len(_EXCEPTIONS)].encode(), _message(number)
    headers: Headers = [
        ("kafka_dlt-exception-fqcn", _WRAPPER), ("kafka_dlt-exception-cause-fqcn", cause),
        ("kafka_dlt-exception-message", message),
        ("kafka_dlt-exception-stacktrace", b"%s: %s\nCaused by: %s: %s\n%s" % (_WRAPPER, message, cause, message, _FRAMES)),
        ("kafka_dlt-original-topic", b"orders"), ("kafka_dlt-original-consumer-group", b"orders"),
        ("tenant", b"tenant%d" % (number % _TENANTS)),
        (names.ID, b"%016x" % number), (names.ATTEMPT, b"%d" % (1 + number % _ATTEMPTS)),
        (names.SOURCE, b"%s/0/%d" % (topic.encode(), number)), (names.DUE_MS, b"%d" % _due_ms(number)),
        (names.POLICY, b"%s/%s" % (team.encode(), topic.encode())),
        (names.FIRST_FAILED_MS, b"%d" % (_BEGAN_MS - number * _SCATTER % 3_600_000)),
    ]  # fmt: skip
    entry = Entry(service.retries, b"order-%09d" % number, letter(number, _due_ms(number)), headers, _BEGAN_MS, team, _BEGAN_MS)
    return envelopes.encode(entry)
