"""Letters of many kinds of failures, as an intake writes them, and all else that a console reads of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime

import msgspec
from confluent_kafka import Producer

from retry.console.folding.notes import KeptFilter, Note, Resolved
from retry.console.folding.regrouping import Change
from retry.dead_letters import retry_headers as names
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Entry
from retry.operations.act.audit import AuditLetter, AuditRecord
from retry.record import Headers
from retry.telemetry import fingerprint, outcomes
from retry.telemetry.outcomes import LettersByShared, SharedFields
from retry.telemetry.worker_records import BreakerRecord, WorkerRecord

from .letters import Incorrect, flush, letter, producer
from .service import Service, now_ms
from .waiting import shard

DAY_MS = 86_400_000
_IN_TRANSACTION, _IN_RECORD, _COMMIT_S = 20_000, 500, 120.0
_SCATTER = 2_654_435_761
_EXCEPTIONS = (
    "java.net.SocketTimeoutException", "com.acme.GatewayTimeout", "org.postgresql.util.PSQLException",
    "java.lang.IllegalStateException", "com.acme.CardDeclined",
)  # fmt: skip
_TENANTS, _ATTEMPTS = 100, 3
# Each team has letters of so many kinds, at each attempt.
_TEAMS, _STAGES = 20, 25
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


def fill_beside(service: Service, size: int) -> None:
    """Fill what a console reads, too: of so many letters a tenth more are parked, a tenth was acted on; what was decided on all
    of them; notes, merges, splits and filters; and what workers say of themselves.

    Raises:
      Incorrect: not everything could be written.
    """
    to = producer(service.bootstrap, **{"compression.type": "lz4"})
    own = service.names
    for first in range(0, size, _IN_RECORD):
        tell(to, service, range(first, min(first + _IN_RECORD, size)))
        to.poll(0)
    for number in range(size // 10):
        _, key, value, headers = _letter(number, service)
        kept = [*headers, (names.PARKED_REASON, b"max_attempts")]
        to.produce(own.parked, value, key, number % service.shards, headers=kept)
        if number % _IN_RECORD == 0:
            to.poll(0)
            to.produce(own.audit, make_audit_record(range(number, number + _IN_RECORD), service), b"action", 0)
    for key, record in _notes(service):
        to.produce(own.notes, record, key.encode(), 0)
    flush(to)


def write(to: Producer, service: Service, numbers: range) -> None:
    """Entries of these letters, in the transaction that is open."""
    shards: list[list[dict[str, bytes | None]]] = [[] for _ in range(service.shards)]
    for number in numbers:
        shards[_shard(number, service)].append({"key": _key(number, service), "value": _envelope(number, service)})
    _produce(to, service, shards)


def end(to: Producer, service: Service, numbers: range) -> None:
    """Write that these letters wait no more."""
    shards: list[list[dict[str, bytes | None]]] = [[] for _ in range(service.shards)]
    for number in numbers:
        shards[_shard(number, service)].append({"key": _key(number, service), "value": None})
    _produce(to, service, shards)


def tell(to: Producer, service: Service, numbers: range) -> None:
    """Write what was decided on these letters."""
    by_shared: LettersByShared = defaultdict(list)
    taken_ms = now_ms()
    for number in numbers:
        team, topic = choose_topic(number, service)
        cause = _EXCEPTIONS[number % len(_EXCEPTIONS)]
        shared = SharedFields(
            team, topic, 0, f"{team}/{topic}", _attempt(number), _WRAPPER.decode(), "retry", None, service.retries, cause,
            _fingerprint(number), "orders",
        )  # fmt: skip
        by_shared[shared].append((b"%016x" % number, number, taken_ms - DAY_MS // 2, taken_ms, _due_ms(number)))
    for value in outcomes.encode_outcomes(by_shared, taken_ms):
        to.produce(service.names.outcomes, value, partition=numbers.start % service.shards)


def moment_s(iso: str | None) -> float:
    """Seconds since 1970 of a time as the API tells it; long ago where it tells none."""
    return 0.0 if iso is None else datetime.fromisoformat(iso).timestamp()


def _produce(to: Producer, service: Service, shards: list[list[dict[str, bytes | None]]]) -> None:
    for partition, rows in enumerate(shards):
        if rows and to.produce_batch(service.names.changelog, rows, partition) != len(rows):
            raise Incorrect("the changelog did not take all entries")


def choose_topic(number: int, service: Service) -> tuple[str, str]:
    teams = list(service.of_team.items())
    return teams[number % len(teams)]


def _shard(number: int, service: Service) -> int:
    return shard(b"order-%09d" % number, service.shards)


def _due_ms(number: int) -> int:
    return _BEGAN_MS + 60_000 + number * _SCATTER % DAY_MS


def _key(number: int, service: Service) -> bytes:
    team, topic = choose_topic(number, service)
    lane = entry_keys.lane(team, topic, service.retries)
    return entry_keys.build_key(_due_ms(number), entry_keys.build_key_stem(topic, 0), number, lane)


def _attempt(number: int) -> int:
    return 1 + number // (_TEAMS * _STAGES) % _ATTEMPTS


def _message(number: int) -> bytes:
    stage = bytes([ord("a") + number // _TEAMS % _STAGES])
    return b"stage %s: order %d of customer %d could not be charged: card declined" % (stage, number, number * 7 % 1_000_003)


def _envelope(number: int, service: Service) -> bytes:
    team, key, value, headers = _letter(number, service)
    entry = Entry(service.retries, key, value, headers, _BEGAN_MS, team, _BEGAN_MS)
    return envelopes.encode(entry)


def _letter(number: int, service: Service) -> tuple[str, bytes, bytes, Headers]:
    """Team, key, value and headers."""
    team, topic = choose_topic(number, service)
    cause, message = _EXCEPTIONS[number % len(_EXCEPTIONS)].encode(), _message(number)
    headers: Headers = [
        ("kafka_dlt-exception-fqcn", _WRAPPER), ("kafka_dlt-exception-cause-fqcn", cause),
        ("kafka_dlt-exception-message", message),
        ("kafka_dlt-exception-stacktrace", b"%s: %s\nCaused by: %s: %s\n%s" % (_WRAPPER, message, cause, message, _FRAMES)),
        ("kafka_dlt-original-topic", b"orders"), ("kafka_dlt-original-consumer-group", b"orders"),
        ("tenant", b"tenant%d" % (number % _TENANTS)),
        (names.ID, b"%016x" % number), (names.ATTEMPT, b"%d" % _attempt(number)),
        (names.SOURCE, b"%s/0/%d" % (topic.encode(), number)), (names.DUE_MS, b"%d" % _due_ms(number)),
        (names.POLICY, b"%s/%s" % (team.encode(), topic.encode())),
        (names.FIRST_FAILED_MS, b"%d" % (_BEGAN_MS - number * _SCATTER % 3_600_000)),
    ]  # fmt: skip
    return team, b"order-%09d" % number, letter(number, _due_ms(number)), headers


def make_audit_record(numbers: range, service: Service) -> bytes:
    """A record of the audit, as a worker writes it for each transaction of an action."""
    letters = [AuditLetter("done", f"{choose_topic(number, service)[1]}/0/{number}", _due_ms(number)) for number in numbers]
    teams = sorted({choose_topic(number, service)[0] for number in numbers})
    return msgspec.json.encode(AuditRecord(f"{numbers.start:016x}", "retry", "ann", _BEGAN_MS, 0, letters, "mended", teams))


def _notes(service: Service) -> Iterator[tuple[str, bytes]]:
    kinds = sorted({_fingerprint(number) for number in range(_TEAMS * _STAGES)})
    encode = msgspec.json.encode
    for n, kind in enumerate(kinds):
        yield f"note/{kind}", encode(Note("ann", "the bank is down", f"https://tickets.example.com/{n}", "bob", _BEGAN_MS))
        if n % 4 == 1:
            yield f"change/{n:016x}", encode(Change((kind,), "bob", _BEGAN_MS, into=kinds[n - 1]))
        if n % 4 == 2:
            yield f"change/{n:016x}", encode(Change((kind,), "bob", _BEGAN_MS, by_what="attempt"))
        if n % 4 == 3:
            yield f"resolved/{kind}", encode(Resolved("bob", _BEGAN_MS - DAY_MS))
    for n, team in enumerate(service.of_team):
        yield f"filter/{team}/late", encode(KeptFilter("due:<1h", "ann", _BEGAN_MS))
        breakers = [BreakerRecord(service.retries, "open", "its breaker is open", _BEGAN_MS)] if n == 0 else []
        yield f"worker/w{n}", encode(WorkerRecord("host", _BEGAN_MS, _BEGAN_MS, 3_600_000, [n], breakers))


def _fingerprint(number: int) -> str | None:
    cause = _EXCEPTIONS[number % len(_EXCEPTIONS)]
    return fingerprint.compute_fingerprint(cause, _message(number).decode())
