"""`retry policies check` and `explain`, as a person runs them."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from retry.__main__ import main

TEXT = """
defaults:
  jitter: equal
  max_attempts: 12
teams:
  pay:
    topics:
      - dead_letters: pay.DLT
        retry_to: pay.retry
        park_to: pay.parked
        rules:
          - {exception: '*.Bad', park: true}
          - {exception: '*Timeout*', jitter: none, max_attempts: 3, backoff: {kind: steps, delays: [1m, 5m]}}
      - {dead_letters: ship.DLT, retry_to: origin, allowed_targets: [ship], honour_retry_at: false}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(TEXT)
    return str(path)


def run(*args: str, **env: str) -> Result:
    return CliRunner(env={"RETRY_POLICIES": None} | env).invoke(main, ["policies", *args])


def explain_file(file: str, *args: str) -> list[str]:
    result = run("explain", "--file", file, *args)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.splitlines()


def test_check_counts_teams_and_topics(file):
    result = run("check", file)
    assert (result.exit_code, result.stdout) == (0, f"{file}: 1 team, 2 topics: OK\n")


def test_check_names_file_line_path_and_reason(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(TEXT.replace("equal", "some"))
    result = run("check", str(path))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"{path}:3: defaults.jitter: 'some' is not one of none, full, equal, proportional\n"


def test_check_of_a_missing_file_fails(tmp_path):
    result = run("check", str(tmp_path / "none.yaml"))
    assert result.exit_code == 1
    assert "No such file" in result.stderr


def test_explain_shows_the_wait_of_ten_retries_at_most(file):
    lines = explain_file(file, "--topic", "pay.DLT", "--attempt", "1")
    assert lines[:8] == [
        "pay.DLT belongs to team pay, as pay/pay.DLT.",
        "Rule 1 does not match:",
        "  exception *.Bad: no, it is unknown",
        "Rule 2 does not match:",
        "  exception *Timeout*: no, it is unknown",
        "No rule matches; the policy is pay/pay.DLT.",
        "Retry 1 is made, to pay.retry.",
        "  retry 1: 5s to 10s after the failure",
    ]
    waits = [line for line in lines if line.startswith(("  retry", "  …"))]
    assert (len(waits), waits[-1]) == (10, "  … and so on to retry 12")
    assert lines[-4:] == [
        "Jitter is equal. A letter may ask for its own time (retry-at-ms), at most 1h from now.",
        "After retry 12 the letter is parked in pay.parked;",
        "sooner, if the next retry would come more than 3d after the first failure.",
        "Letters overtake each other: not ordered.",
    ]


def test_explain_says_which_rule_matched(file):
    lines = explain_file(file, "--topic", "pay.DLT", "--exception", "x.TimeoutError", "--attempt", "2")
    assert lines[1:8] == [
        "Rule 1 does not match:",
        "  exception *.Bad: no, it is x.TimeoutError",
        "Rule 2 matches; the policy is pay/pay.DLT#2:",
        "  exception *Timeout*: yes, it is x.TimeoutError",
        "Retry 2 is made, to pay.retry.",
        "  retry 2: 5m after the failure",
        "  retry 3: 5m after the failure",
    ]


@pytest.mark.parametrize(
    ("args", "last"),
    [
        (["--topic", "pay.DLT", "--exception", "x.Bad", "--attempt", "1"],
         "The letter is parked at once, in pay.parked."),
        (["--topic", "pay.DLT", "--attempt", "13"], "The letter is parked in pay.parked: max_attempts."),
        (["--topic", "no.DLT", "--attempt", "1"],
         "There is nowhere to retry to, so the letter is parked in the service's parking topic: no_policy."),
        (["--topic", "pay.DLT", "--attempt", "1", "--age", "4d"], "The letter is parked in pay.parked: max_age."),
        (["--topic", "ship.DLT", "--attempt", "1"],
         ("What is given (--origin, --group) does not say which topic origin is;"
         " such a letter is parked in the service's parking topic: no_origin.")),
        (["--topic", "ship.DLT", "--attempt", "1", "--origin", "__x"],
         ("What is given (--origin, --group) does not say which topic origin is;"
         " such a letter is parked in the service's parking topic: target_not_allowed.")),
        (["--topic", "ship.DLT", "--attempt", "1", "--origin", "pay"],
         ("origin is pay, which is not among allowed_targets, or takes what is parked,"
         " so the letter is parked in the service's parking topic: target_not_allowed.")),
    ],
)  # fmt: skip
def test_explain_says_when_a_letter_parks(file, args, last):
    assert explain_file(file, *args)[-1] == last


def test_explain_of_origin_and_of_a_policy_that_does_not_listen(file):
    lines = explain_file(file, "--topic", "ship.DLT", "--attempt", "12", "--origin", "ship")
    assert "There are no rules; the policy is pay/ship.DLT." in lines
    assert "Retry 12 is made, to ship, which is origin." in lines
    assert "Jitter is equal. A letter may not ask for its own time." in lines
    assert "After retry 12 the letter is parked in the service's parking topic;" in lines


RICH = r"""
targets:
  a.g.retry: {rate: 500/s, breaker: {failures: 20, within: 1m, open_for: 30s}}
teams:
  a:
    rate: 100/s
    budget: 50000/1d
    topics:
      - dead_letters: {pattern: '(a)\.DLT'}
        retry_to: '{1}.{group}.retry'
        allowed_targets: [a.g.retry]
        ordered: true
        rules:
          - exception: [x.Y, 'z.*']
            cause: c
            stage: 'TASK_*'
            message: 'time ?out'
            attempt: 2..
            age: 1h
            headers: {tenant: blue, mark: '*'}
            null_value: true
"""


def test_explain_goes_through_every_condition_and_tells_target_order_and_limits(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(RICH)
    lines = explain_file(
        str(path), "--topic", "a.DLT", "--attempt", "2", "--exception", "w.W", "--cause", "z.Z", "--stage", "TASK_PUT",
        "--message", "a timeout", "--age", "30m", "--header", "tenant=green", "--header", "tenant=blue=1", "--group", "g",
    )  # fmt: skip
    assert lines[1:12] == [
        "Rule 1 does not match:",
        "  exception x.Y, z.*: yes, it is w.W because of z.Z",
        "  cause c: no, it is z.Z",
        "  stage TASK_*: yes, it is TASK_PUT",
        "  null_value true: no, it is false",
        "  attempt 2..: yes, it is 2",
        "  age 1h: no, it is 30m",
        "  headers.tenant blue: no, it is blue=1",
        "  headers.mark *: no, it is unknown",
        "  message time ?out: yes, it is a timeout",
        r"No rule matches; the policy is a/(a)\.DLT.",
    ]
    assert "Retry 2 is made, to a.g.retry, which is {1}.{group}.retry." in lines
    assert lines[-4:] == [
        "Letters of one key wait for each other: ordered.",
        "Team a makes at most 100 retries in 1s and 50,000 retries in 1d.",
        "a.g.retry takes at most 500 retries in 1s.",
        "After 20 failures within 1m, a.g.retry rests for 30s.",
    ]


def test_explain_says_what_a_null_cancels_and_that_a_letter_can_be_cancelled(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("teams: {a: {topics: [{dead_letters: d, retry_to: r, park_to: p, null_value: cancel}]}}")
    lines = explain_file(str(path), "--topic", "d", "--attempt", "1")
    assert "While it waits, a later letter of its key and partition without a value cancels it: null_value is cancel." in lines
    lines = explain_file(str(path), "--topic", "d", "--attempt", "1", "--null-value")
    assert lines[-2:] == [
        "It has no value, and null_value is cancel: it cancels earlier letters of its key and partition that wait.",
        "They are parked in p: cancelled. So is it itself: null_value, or no_key where it has none.",
    ]


@pytest.mark.parametrize("args", [["--age", "5"], ["--header", "x"], ["--header", "=x"]])
def test_explain_says_how_its_options_are_written(file, args):
    result = run("explain", "--file", file, "--topic", "pay.DLT", "--attempt", "1", *args)
    assert result.exit_code == 2
    assert "not" in result.stderr


def test_explain_says_what_the_calendar_is(tmp_path):
    path = tmp_path / "p.yaml"
    keys = "quiet_hours: {from: '22:00', to: '06:00', zone: UTC, days: [sat]}, align: {cron: '@hourly'}"
    path.write_text(f"teams: {{t: {{topics: [{{dead_letters: a.DLT, retry_to: a, {keys}}}]}}}}")
    lines = explain_file(str(path), "--topic", "a.DLT", "--attempt", "1")
    assert "It then waits for the calendar: aligned to @hourly UTC, quiet 22:00–06:00 UTC on sat." in lines


def test_explain_takes_the_file_from_the_environment(file):
    assert run("explain", "--topic", "pay.DLT", "--attempt", "1", RETRY_POLICIES=file).exit_code == 0


@pytest.mark.parametrize("args", [["--attempt=1"], ["--attempt=0", "--file=x"], ["--attempt=x", "--file=x"]])
def test_explain_needs_a_file_and_an_attempt_from_1(args):
    assert run("explain", "--topic", "t", *args).exit_code == 2
