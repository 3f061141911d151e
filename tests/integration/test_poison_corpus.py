"""The poison corpus of `reference/reliability.md` §6 against one running worker on a real broker.

W: the letter comes back, key, value and headers as they were. P: it is parked, with the reason. The worker lives
through all of them in one process, and a good letter that is sent last comes back like the first.

Rows, or parts of rows, that have nothing to bite on yet:

- P09–P11, P15, P44: "viewer shows", "CSP blocks", "never copied to HTTP": there is no viewer, and no payload in HTTP.
- P18, P19: there is no header that may override a target; what is tested is that such headers choose nothing.
- P21: there is no HMAC; that our own count wins is in `tests/unit/intake/test_attempt_counter.py` and
  `tests/acceptance/test_loops.py`.
- P26 "source time": no policy key chooses the clock; the timestamp counts, bounded by `max_delay`.
- P27, a day ahead: brokers refuse timestamps that far ahead.
- P28, P29: no policy reads a field of the value; the bytes are sent all the same, as W.
- P32: a topic without a policy is not subscribed to; `tests/unit/intake/test_intake.py` has it.
- P39, P40: `tests/acceptance/test_foreign_records.py`; P41: `test_fairness.py`; P42, P43: `test_loops.py`.
- P48: `tests/unit/policies`.
- P45, P47: there is no export and no webhook yet.
- P35: `tests/unit/intake/test_intake.py` and `tests/contract/test_table_contract.py` have it, and the acceptance runs.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, Message, Producer

from retry.clock import wall_ms
from retry.dead_letters import retry_headers as names
from retry.kafka.local_broker import LocalBroker
from retry.telemetry.outcomes import read as letters_of
from tests.support.deployment import ROOT, Deployment, WorkerProcess, await_that
from tests.support.lineage_ids import silent_id
from tests.support.reading import COMMITTED, Record, Tail, read

pytestmark = pytest.mark.check

Headers = Sequence[tuple[str, bytes | None]]
MB = 1 << 20
DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
DELAY_MS, MAX_DELAY_MS = 200, 1_000
# The largest value that a broker takes with default settings, in a record without a key.
LARGEST = 1_048_388
NARROW = {"max.message.bytes": "1048588"}
STORM = 10_000
_FLUSH_S = 60.0
W = "W"
LEAN = "P03_room_for_the_essential_headers_only"


class Case(NamedTuple):
    """One letter and what must become of it: W, or the reason for which it is parked.

    Without a timestamp it has that of its being sent, or one that is so far ahead of it.
    """

    name: str
    expected: str
    key: bytes | None = b"key"
    value: bytes | None = b"value"
    headers: Headers = ()
    timestamp_ms: int | None = None
    topic: str = "main"
    ahead_ms: int = 0


def attempt(raw: bytes | None) -> Headers:
    return [("retry-attempt", raw)]


def wish(raw: bytes | None) -> Headers:
    return [("retry-at-ms", raw)]


def ascii_ms(moment_ms: int) -> bytes:
    return b"%d" % moment_ms


NOW_MS = wall_ms()
SCRIPT = b"<script>alert(1)</script><img src=x onerror=alert(1)>{{7*7}}</textarea>"
SPRING: Headers = [
    ("kafka_dlt-exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
    ("kafka_dlt-exception-cause-fqcn", b"com.example.Timeout"),
    ("kafka_dlt-exception-stacktrace", b"at com.example.Orders.take(Orders.java:42)\n" * 2_500),
    ("kafka_dlt-original-partition", b"\0\0\0\x03"),
    ("kafka_dlt-original-offset", b"\0\0\0\0\0\0\x30\x39"),
]
CASES = [
    Case("P01_empty_value", W, value=b""),
    Case("P02_null_value", W, value=None),
    Case("P03_largest_value_where_the_target_takes_it_with_headers", W, key=None, value=b"x" * LARGEST),
    Case("P03_largest_value_where_it_does_not", "too_large", key=None, value=os.urandom(LARGEST), topic="narrow"),
    Case("P03_a_little_less_fits_everywhere", W, key=None, value=os.urandom(LARGEST - 1_000), topic="narrow"),
    Case(LEAN, W, key=None, value=os.urandom(LARGEST - 270), topic="narrow"),
    Case("P04_3_mb_on_a_raised_topic", W, value=os.urandom(3 * MB)),
    Case("P05_5_mb_that_compress_to_nothing", W, value=bytes(5 * MB)),
    Case("P06_key_of_900_kb", W, key=b"k" * 900_000),
    Case("P06_key_of_3_mb", W, key=os.urandom(3 * MB)),
    Case("P07_null_key", W, key=None),
    Case("P07_null_key_and_value", W, key=None, value=None),
    Case("P08_empty_key", W, key=b""),
    Case("P09_no_utf8", W, key=b"\xff\xfe\0", value=b"\xff\xfe\0"),
    Case("P10_control_characters", W, value="\0\u202e\u200b\x1b[31mred\x1b]0;title\x07".encode()),
    Case("P11_markup", W, key=SCRIPT, value=SCRIPT, headers=[("text", SCRIPT), (SCRIPT.decode(), b"")]),
    Case("P12_null_header", W, headers=[("a", None), ("b", b"")]),
    Case("P13_duplicate_headers", W, headers=[("a", b"1"), ("b", b"2"), ("a", b"3"), ("a", b"1")]),
    Case("P13_duplicate_headers_of_ours", W, headers=[*attempt(b"NaN"), ("a", b"1"), *attempt(b"2")]),
    Case("P14_empty_header_name", W, headers=[("", b"1"), ("", None), ("", b"")]),
    Case("P15_line_breaks_in_header_names", W, headers=[("a\r\nSet-Cookie: b", b"\r\n")]),
    Case("P15_unicode_in_header_names", W, headers=[("☃\u202e", b"1"), ("\U0001f4a9", None)]),
    Case("P16_10000_headers", W, headers=[(f"header-{n:05}", b"x" * 77) for n in range(10_000)]),
    Case("P16_10000_headers_that_fit_compressed_only", W, topic="narrow",
         headers=[(f"header-{n:05}", b"x" * 89) for n in range(10_000)]),
    Case("P17_header_of_1_mb", W, headers=[("large", os.urandom(MB))]),
    *(
        Case(f"P18_target_{n}", W, headers=[(name, target)])
        for n, (name, target) in enumerate([
            ("x-retry-topic", b"__consumer_offsets"), ("x-retry-topic", b"../x"), ("retry-topic", b"other.retry"),
            ("kafka_dlt-original-topic", b"__consumer_offsets"),
        ])
    ),
    Case("P18_origin_internal", "target_not_allowed", topic="origin",
         headers=[("kafka_dlt-original-topic", b"__consumer_offsets")]),
    Case("P18_origin_no_name", "target_not_allowed", topic="origin", headers=[("x-original-topic", b"../x\0\xff")]),
    Case("P18_origin_allowed", W, topic="origin"),
    Case("P19_back_to_the_dead_letters", "target_not_allowed", topic="origin",
         headers=[("kafka_dlt-original-topic", b"<dead letters>")]),
    Case("P20_attempt_zero_again", W, headers=attempt(b"0")),
    Case("P20_attempt_last", W, headers=attempt(b"7")),
    Case("P20_attempt_one_too_many", "max_attempts", headers=attempt(b"8")),
    Case("P20_attempt_2147483648", "max_attempts", headers=attempt(b"2147483648")),
    *(
        Case(f"P20_attempt_{n}", "bad_attempt", headers=attempt(raw))
        for n, raw in enumerate([
            b"-1", b"1e9", b"NaN", b" 3 ", b"", None, b"+1", b"0x1", "٣".encode(), b"1" * MB, b"1_0",
        ])
    ),
    Case("P21_forged_lineage", W,
         headers=[("retry-id", b"\xff" * 9_000), ("retry-source", b"a/0/0"), ("retry-policy", None)]),
    Case("P22_due_in_the_past", W, headers=wish(ascii_ms(NOW_MS - DAY_MS))),
    Case("P22_due_now", W, headers=wish(ascii_ms(NOW_MS))),
    Case("P22_due_in_1_ms", W, headers=wish(ascii_ms(NOW_MS + 1))),
    Case("P23_due_in_10_years", W, headers=wish(ascii_ms(NOW_MS + 10 * YEAR_MS))),
    Case("P23_due_in_the_year_9999", W, headers=wish(b"253402300799999")),
    Case("P23_due_in_9999_years", "bad_due", headers=wish(ascii_ms(NOW_MS + 9_999 * YEAR_MS))),
    Case("P23_due_at_the_end_of_64_bits", "bad_due", headers=wish(ascii_ms((1 << 63) - 1))),
    *(
        Case(f"P24_due_{n}", "bad_due", headers=wish(raw))
        for n, raw in enumerate([
            b"-1", ascii_ms(-(1 << 63)), b"1700000000000.5", b"2026-11-21T12:00:00Z", b"2026-11-21T12:00:00+02:00",
            b"2016-12-31T23:59:60Z", b"", None, b"tomorrow", b"9" * MB,
        ])
    ),
    Case("P25_seconds_for_milliseconds", "bad_due", headers=wish(b"1700000000")),
    Case("P25_microseconds_for_milliseconds", "bad_due", headers=wish(b"1700000000000000")),
    Case("P26_timestamp_minus_1", W, timestamp_ms=-1),
    Case("P26_timestamp_minus_5", W, timestamp_ms=-5),
    Case("P26_timestamp_0", W, timestamp_ms=0),
    # Of its being sent: a long run may have begun an hour before.
    Case("P26_timestamp_in_59_minutes", W, ahead_ms=59 * 60_000),
    Case("P27_timestamp_of_yesterday", W, timestamp_ms=NOW_MS - DAY_MS),
    Case("P27_timestamp_of_1970", W, timestamp_ms=1),
    Case("P28_truncated_json", W, value=b'\xef\xbb\xbf{"a": NaN, "a": 1e400, "b": [' + b"[" * 100_000),
    Case("P29_many_json_keys", W, value=b"{" + b",".join(b'"%d":0' % n for n in range(100_000)) + b"}"),
    Case("P30_unknown_schema_id", W, value=b"\0\xff\xff\xff\xffavro"),
    Case("P31_pickle", W, value=b"cos\nsystem\n(S'touch /tmp/owned'\ntR."),
    Case("P31_yaml_tag", W, value=b"!!python/object/apply:os.system ['touch /tmp/owned']"),
    Case("P37_spring_headers", W, headers=SPRING),
    Case("P38_names_like_ours", W, headers=[("Retry-Attempt", b"99"), ("retry-attempt ", b"9"), ("rеtry-at-ms", b"x")]),
    Case("P44_format_strings", W, value=b"${jndi:ldap://x/a}%n%s{0.__class__}", headers=[("${jndi:x}", b"%s")]),
    Case("rule_parks", "rule", headers=[("exception-class", b"com.example.ValidationException")]),
]  # fmt: skip
# Equal letters may be taken for one that came back.
CASES = [case._replace(value=case.name.encode()) if case.value == b"value" else case for case in CASES]


class Corpus(Deployment):
    """The deployment of this file: a roomy topic, one at the default limits, one that goes back to its origin."""

    def _policies(self, defaults: str, topic_keys: str) -> str:
        prefix, parking = self.app_id, f"park_to: {self.parked}"
        plain = "".join(
            f"      - {{dead_letters: {prefix}.{name}.DLT, retry_to: {prefix}.{name}.retry, {parking},"
            " rules: [{exception: '*.ValidationException', park: true}]}\n"
            for name in ("main", "narrow", "storm")
        )
        curve = f"{{kind: constant, delay: {DELAY_MS}ms, max_delay: {MAX_DELAY_MS}ms}}"
        return (
            f"defaults: {{backoff: {curve}, jitter: none}}\n"
            f"teams:\n  testers:\n    topics:\n{plain}"
            f"      - {{dead_letters: {prefix}.origin.DLT, retry_to: origin, {parking},"
            f" allowed_targets: [{prefix}.origin, {self.parked}]}}\n"
        )


class Run(NamedTuple):
    """One run: what was sent, by name, and everything that came out."""

    deployment: Corpus
    worker: WorkerProcess
    pid: int
    sources: Mapping[str, str]
    out: Mapping[str, list[Record]]
    outcomes: Mapping[str, list[dict[str, Any]]]
    aborted: list[str]
    storm: list[str]


@pytest.fixture(scope="module")
def run(broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Everything is sent to one worker, and all of it is out."""
    deployment = deploy_corpus(broker, tmp_path_factory.mktemp("corpus"))
    worker = deployment.worker().start().await_ready()
    pid = worker.pid
    try:
        sources = send(deployment, CASES)
        storm = [f"storm {n}" for n in range(STORM)]
        sources |= send(deployment, [Case(n, W, b"k", n.encode(), (), NOW_MS, "storm") for n in storm])
        aborted = send_aborted(deployment)
        sources |= send(deployment, [Case("the last one", W)])
        tail = Tail(broker.bootstrap_servers, outputs(deployment))
        tail.await_seen(len(sources), timeout_s=120)
        tail.quiet(0.5)
        tail.close()
        told = outcomes(deployment)
        by_source: dict[str, list[Record]] = {}
        for record in tail.records:
            # One letter has no room for the header; its record is the one without.
            by_source.setdefault(record.header(names.SOURCE) or sources[LEAN], []).append(record)
        yield Run(deployment, worker, pid, sources, by_source, told, aborted, storm)
    finally:
        print(worker.tail())
        deployment.close()


def deploy_corpus(broker: LocalBroker, folder: Path) -> Corpus:
    made = Corpus(broker.bootstrap_servers, folder, {"main": 2, "storm": 1}, shards=2, retry_config={})
    made.create({
        f"{made.app_id}.narrow.DLT": (1, NARROW), f"{made.app_id}.narrow.retry": (1, NARROW),
        f"{made.app_id}.origin.DLT": (1, {}), f"{made.app_id}.origin": (1, {}),
    })  # fmt: skip
    made.prepare()
    return made


def outputs(deployment: Corpus) -> list[str]:
    retry = [f"{deployment.app_id}.{name}" for name in ("main.retry", "narrow.retry", "storm.retry", "origin")]
    return [*retry, deployment.parked, deployment.names.parked]


def outcomes(deployment: Corpus) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for record in read(deployment.bootstrap_servers, [deployment.names.outcomes], COMMITTED):
        for outcome in letters_of(record.value or b""):
            found.setdefault(outcome["source"], []).append(dict(outcome))
    return found


def sent_headers(deployment: Corpus, case: Case) -> list[tuple[str, bytes | None]]:
    dead_letters = f"{deployment.app_id}.{case.topic}.DLT".encode()
    return [(name, dead_letters if value == b"<dead letters>" else value) for name, value in case.headers]


def send(deployment: Corpus, cases: Sequence[Case]) -> dict[str, str]:
    """Send letters, and return their coordinates by name."""
    sources: dict[str, str] = {}
    producer = Producer({
        "bootstrap.servers": deployment.bootstrap_servers, "message.max.bytes": 16 * MB, "enable.idempotence": True,
        "compression.type": "zstd", "queue.buffering.max.kbytes": 64 << 10,
    })  # fmt: skip
    # Not every timestamp can be sent by librdkafka, which takes 0 for the present.
    odd = [case for case in cases if case.timestamp_ms is not None and case.timestamp_ms <= 0]
    for case in cases:
        if case not in odd:
            topic, stamp_ms = f"{deployment.app_id}.{case.topic}.DLT", case.timestamp_ms or wall_ms() + case.ahead_ms
            told = teller(sources, case.name)
            producer.produce(topic, case.value, case.key, 0, told, timestamp=stamp_ms, headers=sent_headers(deployment, case))
            producer.poll(0)
    assert producer.flush(_FLUSH_S) == 0
    return sources | (asyncio.run(send_odd(deployment, odd)) if odd else {})


def teller(sources: dict[str, str], name: str) -> Any:
    def note_place(error: KafkaError | None, message: Message) -> None:
        assert error is None, f"{name}: {error}"
        sources[name] = f"{message.topic()}/{message.partition()}/{message.offset()}"

    return note_place


async def send_odd(deployment: Corpus, cases: Sequence[Case]) -> dict[str, str]:
    from aiokafka import AIOKafkaProducer

    sources = {}
    async with AIOKafkaProducer(bootstrap_servers=deployment.bootstrap_servers) as producer:
        for case in cases:
            topic = f"{deployment.app_id}.{case.topic}.DLT"
            sent = await producer.send_and_wait(topic, case.value, case.key, timestamp_ms=case.timestamp_ms)
            sources[case.name] = f"{sent.topic}/{sent.partition}/{sent.offset}"
    return sources


def send_aborted(deployment: Corpus) -> list[str]:
    """Letters of a transaction that is undone, between two that are not."""
    sources: dict[str, str] = {}
    producer = Producer({"bootstrap.servers": deployment.bootstrap_servers, "transactional.id": deployment.app_id})
    producer.init_transactions(_FLUSH_S)
    producer.begin_transaction()
    for n in range(3):
        producer.produce(f"{deployment.app_id}.main.DLT", b"undone", b"key", 0, teller(sources, str(n)))
    assert producer.flush(_FLUSH_S) == 0
    producer.abort_transaction(_FLUSH_S)
    return list(sources.values())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_3_11_each_letter_comes_out_once_and_as_it_should(run: Run, case: Case) -> None:
    source = run.sources[case.name]
    (record,), (outcome,) = run.out[source], run.outcomes[source]
    parked = "" if case.expected == W else case.expected
    assert record.header(names.PARKED_REASON) == parked == (outcome["reason"] or "")
    assert outcome["decision"] == ("park" if parked else "retry")
    assert outcome["target"] == record.topic
    if parked:
        assert record.topic == run.deployment.parked
    else:
        origin, plain = f"{run.deployment.app_id}.origin", f"{run.deployment.app_id}.{case.topic}.retry"
        assert record.topic == (origin if case.topic == "origin" else plain)
    if parked == "too_large":
        assert record.value is None
        assert record.key == (case.key if len(case.key or b"") <= 1_024 else None)
        assert {name for name, _ in record.headers} <= names.OURS
    else:
        assert (record.key, record.value) == (case.key, case.value)
        theirs = [header for header in sent_headers(run.deployment, case) if header[0] not in names.OURS]
        assert record.headers[: len(theirs)] == theirs
        ours = [name for name, _ in record.headers[len(theirs) :]]
        assert len(set(ours)) == len(ours)
        assert names.RETRY_AT_MS not in ours
        assert set(ours) <= names.OURS


def test_the_wish_of_a_letter_is_bounded_from_above_only(run: Run) -> None:
    def due_ms(name: str) -> int:
        return int(run.out[run.sources[name]][0].header(names.DUE_MS))

    assert due_ms("P22_due_in_the_past") == NOW_MS - DAY_MS
    assert (due_ms("P22_due_now"), due_ms("P22_due_in_1_ms")) == (NOW_MS, NOW_MS + 1)
    for name in ("P23_due_in_10_years", "P23_due_in_the_year_9999", "P26_timestamp_in_59_minutes"):
        taken_ms = run.outcomes[run.sources[name]][0]["taken_ms"]
        assert due_ms(name) == taken_ms + MAX_DELAY_MS


@pytest.mark.parametrize("name", ["P26_timestamp_minus_1", "P26_timestamp_minus_5", "P26_timestamp_0", "P27_timestamp_of_1970"])
def test_without_a_likely_timestamp_time_counts_from_intake(run: Run, name: str) -> None:
    (outcome,) = run.outcomes[run.sources[name]]
    assert outcome["due_ms"] == outcome["taken_ms"] + DELAY_MS


def test_the_reference_to_a_letter_that_is_too_large_says_where_it_lies(run: Run) -> None:
    source = run.sources["P03_largest_value_where_it_does_not"]
    record = run.out[source][0]
    assert record.header(names.SOURCE) == source
    assert record.header(names.POLICY) == f"testers/{run.deployment.app_id}.narrow.DLT"


def test_optional_headers_of_ours_are_dropped_before_the_payload_is(run: Run) -> None:
    record = run.out[run.sources[LEAN]][0]
    assert {name for name, _ in record.headers} == {names.ID, names.ATTEMPT, names.FIRST_FAILED_MS}


def test_the_exception_is_read_from_large_foreign_headers(run: Run) -> None:
    assert run.outcomes[run.sources["P37_spring_headers"]][0]["exception"] == "com.example.Timeout"


def test_a_lineage_that_cannot_be_one_is_replaced(run: Run) -> None:
    source = run.sources["P21_forged_lineage"]
    record = run.out[source][0]
    lineage = silent_id("testers", source.split("/")[0], b"key", b"P21_forged_lineage").decode()
    assert (record.header(names.ID), record.header(names.SOURCE)) == (lineage, source)


def test_p33_p34_what_was_aborted_is_not_taken_in_and_what_lies_behind_it_is(run: Run) -> None:
    assert len(run.aborted) == 3
    assert not set(run.aborted) & (run.out.keys() | run.outcomes.keys())
    assert int(run.sources["the last one"].rsplit("/", 1)[1]) > int(run.aborted[-1].rsplit("/", 1)[1])


def test_p36_10000_letters_of_one_key_and_millisecond_all_come_back_once(run: Run) -> None:
    # Not in their order, which `ordered: true` alone promises: one that was taken in by itself has no block, and its own turn.
    topic = f"{run.deployment.app_id}.storm.retry"
    came = [r for found in run.out.values() for r in found if r.topic == topic]
    assert len({r.partition for r in came}) == 1
    assert sorted(r.value or b"" for r in came) == sorted(name.encode() for name in run.storm)


def test_nothing_came_out_that_was_not_sent(run: Run) -> None:
    assert run.out.keys() == run.outcomes.keys() == set(run.sources.values())


def test_the_worker_lived_through_all_of_it(run: Run) -> None:
    assert run.worker.running()
    assert run.worker.pid == run.pid
    assert run.out[run.sources["the last one"]][0].value == b"value"
    (record,) = run.out[run.sources["the last one"]]
    assert (record.header(names.ATTEMPT), record.header(names.PARKED_REASON)) == ("1", "")
    await_that("nothing waits", lambda: run.worker.metric("retry_entries_waiting") == 0)
    run.worker.await_ready()


# A header name that is not UTF-8 is beyond what librdkafka's clients and aiokafka's compiled builder will write.
_RAW_NAME = """\
import asyncio, sys
from aiokafka import AIOKafkaProducer

class Raw(str):
    def encode(self, *_):
        return b"\\xff\\xfe"

async def main(servers, topic):
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        sent = await producer.send_and_wait(topic, b"value", b"key", headers=[(Raw("xx"), b"1")])
        print(f"{sent.topic}/{sent.partition}/{sent.offset}")

asyncio.run(main(*sys.argv[1:]))
"""


def test_p15_a_header_name_that_is_not_utf8(broker: LocalBroker, tmp_path: Path) -> None:
    """A deployment of its own: the other letters shall not fall with this one."""
    deployment = deploy_corpus(broker, tmp_path)
    worker = deployment.worker().start().await_ready()
    try:
        sent = subprocess.run(
            [sys.executable, "-c", _RAW_NAME, broker.bootstrap_servers, f"{deployment.app_id}.main.DLT"],
            cwd=ROOT, env={**os.environ, "AIOKAFKA_NO_EXTENSIONS": "1"}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        behind = send(deployment, [Case("behind", W)])
        tail = Tail(broker.bootstrap_servers, outputs(deployment))
        tail.await_seen(2)
        tail.close()
        (broken,) = [record for record in tail.records if record.header(names.SOURCE) == sent.stdout.strip()]
        assert (broken.topic, broken.key, broken.value) == (deployment.parked, b"key", None)
        assert broken.header(names.PARKED_REASON) == "unreadable_headers"
        assert behind["behind"] in tail.seen
        assert worker.running()
    finally:
        print(worker.tail())
        deployment.close()
