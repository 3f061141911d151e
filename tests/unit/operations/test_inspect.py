"""`retry inspect FILE`: letters as JSON lines in, what a worker would make of them out."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import asdict

from retry.__main__ import main
from retry.dead_letters import dead_letter
from retry.intake import attempts
from retry.kafka.offset_ranges import Span
from retry.operations import json_lines
from retry.operations.cluster import LetterRange
from tests.support.lineage_ids import silent_id
from tests.support.process import ROOT

NOW_MS = 1_795_284_700_000
CAPTURED = sorted((ROOT / "tests" / "fixtures" / "captured").glob("*.jsonl"))
LETTERS = sorted((ROOT / "tests" / "fixtures" / "letters").glob("*.jsonl"))
POLICIES = """
defaults: {backoff: {kind: constant, delay: 10s, max_delay: 1m}, jitter: none, max_attempts: 3}
teams:
  pay:
    topics:
      - dead_letters: pay.DLT
        retry_to: pay.retry
        park_to: pay.parked
        origins: [pay]
        rules: [{exception: '*.Bad', park: true}]
      - {dead_letters: back.DLT, retry_to: origin, allowed_targets: [back]}
"""
KEYS = [
    "topic", "partition", "offset", "family", "origin_topic", "origin_partition", "origin_offset", "consumer_group", "attempt",
    "exception", "cause", "message", "cause_message", "stage", "lineage", "policy", "decision", "reason", "target", "due_at_ms",
]  # fmt: skip


@pytest.fixture
def policies(tmp_path: Path) -> str:
    path = tmp_path / "p.yaml"
    path.write_text(POLICIES)
    return str(path)


def b64(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()


def line(*headers: tuple[str, bytes | None], **fields: Any) -> str:
    told = {"topic": "pay.DLT", "partition": 2, "offset": 7, "timestamp": NOW_MS, "key": b64(b"k"), "value": b64(b"v")}
    return json.dumps({**told, "headers": [[name, b64(value)] for name, value in headers], **fields})


def run(text: str | bytes, *args: str) -> Result:
    runner = CliRunner(env={"RETRY_POLICIES": None})
    return runner.invoke(main, ["inspect", "-", "--now", str(NOW_MS), *args], input=text)


def rows(text: str | bytes, *args: str) -> list[dict[str, Any]]:
    result = run(text, *args)
    assert (result.exit_code, result.stderr) == (0, "")
    return [json.loads(each) for each in result.stdout.splitlines()]


def row(text: str, *args: str) -> dict[str, Any]:
    (found,) = rows(text, *args)
    return found


def test_no_letter_is_no_line() -> None:
    assert rows("") == rows("\n \r\n") == []


def test_a_letter_is_a_line_with_these_keys(policies: str) -> None:
    found = row(line(("retry-attempt", b"1")), "--file", policies)
    assert list(found) == KEYS
    assert (found["topic"], found["partition"], found["offset"]) == ("pay.DLT", 2, 7)
    assert (found["decision"], found["reason"], found["target"]) == ("retry", None, "pay.retry")
    assert (found["policy"], found["due_at_ms"]) == ("pay/pay.DLT", NOW_MS + 10_000)
    assert found["lineage"] == silent_id("pay", "pay.DLT", b"k", b"v").decode()


def test_a_rule_parks_and_is_named(policies: str) -> None:
    found = row(line(("exception-class", b"com.acme.Bad")), "--file", policies)
    assert (found["decision"], found["reason"], found["target"], found["due_at_ms"]) == ("park", "rule", "pay.parked", None)
    assert found["policy"] == "pay/pay.DLT#1"


def test_without_a_policy_file_all_park_and_the_failure_is_told_all_the_same() -> None:
    found = row(line(("exception-class", b"com.acme.Bad")))
    assert (found["decision"], found["reason"], found["target"]) == ("park", "no_policy", "retry-parked")
    assert found["exception"] == "com.acme.Bad"


def test_what_is_left_out_has_a_default(policies: str) -> None:
    found = row('{"topic": "pay.DLT"}', "--file", policies)
    assert (found["partition"], found["offset"], found["family"], found["attempt"]) == (0, 0, "unknown", 1)
    # Without a timestamp it failed now.
    assert found["due_at_ms"] == NOW_MS + 10_000


def test_other_keys_are_not_looked_at() -> None:
    assert row(line()) == row(line(name="a case", expect={"family": None}, nested=[[[{}]]]))


def test_what_is_too_large_for_brokers_parks(policies: str) -> None:
    assert row(line(value=b64(bytes(1_100_000))), "--file", policies)["reason"] == "too_large"


def test_the_cluster_is_part_of_the_lineage_where_the_letter_has_coordinates() -> None:
    letter = line(("kafka_dlt-original-topic", b"pay"), ("kafka_dlt-original-partition", b"\0\0\0\3"),
                  ("kafka_dlt-original-offset", b"\0\0\0\0\0\0\0\x09"))  # fmt: skip
    for cluster in ("", "abc"):
        consumer = attempts.describe_failing_consumer("default", None, "pay.DLT")
        expected = attempts.format_retry_id(attempts.make_lineage(cluster, consumer, "pay", 3, 9), "default").decode()
        assert row(letter, "--cluster-id", cluster)["lineage"] == expected
    assert row(letter)["lineage"] == row(letter, "--cluster-id", "")["lineage"]


def test_a_pointer_is_decided_without_its_payload_and_marked(policies: str) -> None:
    headers = [("__streams.errors.exception", b"com.acme.Slow"), ("__streams.errors.topic", b"pay"),
               ("__streams.errors.partition", b"0"), ("__streams.errors.offset", b"5")]  # fmt: skip
    found = row(line(*headers, key=None, value=None), "--file", policies)
    assert (found["pointer"], found["decision"], found["reason"]) == (True, "retry", None)
    elsewhere = [*headers[:1], ("__streams.errors.topic", b"other"), *headers[2:]]
    found = row(line(*elsewhere, key=None, value=None), "--file", policies)
    assert (found["pointer"], found["reason"]) == (True, "source_not_allowed")
    assert "pointer" not in row(line(*headers), "--file", policies)


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ("nope", "malformed"),
        ("[]", "Expected `object`"),
        ("{}", "`topic`"),
        ('{"topic": ""}', "length >= 1"),
        ('{"topic": 1}', "Expected `str`"),
        ('{"topic": "\\ud800"}', ""),
        ('{"topic": "t", "key": "%%"}', "base64 encoded string - at `$.key`"),
        ('{"topic": "t", "value": "YQ"}', "base64"),
        ('{"topic": "t", "headers": [["a", "%"]]}', "base64"),
        ('{"topic": "t", "headers": [["a"]]}', "length 2"),
        ('{"topic": "t", "headers": {"a": "b"}}', "Expected `array`"),
        ('{"topic": "t", "partition": -1}', ">= 0"),
        ('{"topic": "t", "partition": 2147483648}', "partition"),
        ('{"topic": "t", "offset": 9223372036854775808}', "offset"),
        ('{"topic": "t", "timestamp": 1e400}', "timestamp"),
        ('{"topic": "t", "timestamp": 99999999999999999999999}', "timestamp"),
        ('{"topic": "t", "x": ' + "[" * 100_000, ""),
        (b'{"topic": "\xff"}', ""),
        (b"\0", "malformed"),
    ],
)
def test_a_bad_line_is_named_and_the_others_are_read(bad: str | bytes, told: str) -> None:
    raw = bad if isinstance(bad, bytes) else bad.encode()
    result = run(line().encode() + b"\n\n" + raw + b"\n" + line(offset=8).encode())
    assert result.exit_code == 1
    assert [json.loads(each)["offset"] for each in result.stdout.splitlines()] == [7, 8]
    (complaint,) = result.stderr.splitlines()
    assert complaint.startswith("line 3: ") and told in complaint


@pytest.mark.parametrize(
    "letter",
    [
        line(timestamp=-(1 << 63)), line(timestamp=(1 << 63) - 1), line(timestamp=0),
        line(partition=(1 << 31) - 1, offset=(1 << 63) - 1), line(topic="\0\u202e/../☃"),
        line(("", None), ("\0", b""), ("☃\r\n", b"\xff"), ("retry-at-ms", b"\xff"), ("retry-attempt", b"NaN")),
        line(*[("exception-class", b"\xed\xa0\x80")] * 3), line(key=b64(b""), value=None),
    ],
)  # fmt: skip
def test_no_letter_is_refused(letter: str, policies: str) -> None:
    assert len(rows(letter, "--file", policies)) == 1


def test_a_line_that_is_too_long_is_skipped_whole() -> None:
    told: list[tuple[int, str]] = []
    text = f'{{"topic": "a"}}\n{{"topic": "{"b" * 3_000_000}"}}\n{{"topic": "c"}}\n{"d" * 50}'
    found = json_lines.parse_records(io.BytesIO(text.encode()), lambda *complaint: told.append(complaint), line_bytes_max=30)
    assert [record.topic() for record in found] == ["a", "c"]
    assert told == [(2, "longer than 30 bytes"), (4, "longer than 30 bytes")]


def test_a_line_of_megabytes_is_read() -> None:
    assert row(line(value=b64(bytes(4 << 20))))["offset"] == 7


def test_only_the_first_are_read_where_a_limit_says_so() -> None:
    assert [each["offset"] for each in rows("\n".join(line(offset=n) for n in range(9)), "--limit", "2")] == [0, 1]


def test_payloads_and_other_headers_are_never_printed() -> None:
    secret = b"s3cret"
    result = run(line(("token", secret), key=b64(secret), value=b64(secret)))
    assert "s3cret" not in result.output and str(b64(secret)) not in result.output


@pytest.mark.parametrize("args", [[], ["-", "--topic", "t"], ["-", "--partition", "1"], ["-", "--from-offset", "1"]])
def test_what_cannot_be_meant_is_refused(args: list[str]) -> None:
    assert CliRunner().invoke(main, ["inspect", *args]).exit_code == 2


def test_a_policy_file_with_a_mistake_is_named() -> None:
    result = run(line(), "--file", "/nowhere/p.yaml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "/nowhere/p.yaml" in result.stderr


@pytest.mark.parametrize("path", [*CAPTURED, *LETTERS], ids=lambda path: path.stem)
def test_captured_letters_are_told_as_they_are_read(path: Path) -> None:
    cases = [json.loads(each) for each in path.read_text().splitlines()]
    read = [dead_letter.read(each).failure for each in json_lines.parse_records(path.open("rb"), pytest.fail)]
    found = rows(path.read_bytes())
    assert len(found) == len(cases) > 0
    for case, failure, told in zip(cases, read, found, strict=True):
        assert told["family"] == case["expect"]["family"], case["name"]
        fields = {"attempt" if name == "attempts" else name: value for name, value in asdict(failure).items()}
        del fields["origin_timestamp_ms"], fields["thrown"]
        assert {name: told[name] for name in fields} == fields, case["name"]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (LetterRange("t"), (10, 50)),
        (LetterRange("t", from_offset=20), (20, 50)),
        (LetterRange("t", from_offset=5), (10, 50)),
        (LetterRange("t", from_offset=60), (60, 50)),
    ],
)
def test_a_part_of_a_partition(part: LetterRange, expected: tuple[int, int]) -> None:
    found = part.cut_span(Span("t", 0, 10, 50))
    assert (found.start, found.stop) == expected
