"""`retry policies check` and `explain`, as a person runs them."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from retry.commands.policies import policies

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
    return CliRunner(env={"RETRY_POLICIES": None} | env).invoke(policies, args)


def explained(file: str, *args: str) -> list[str]:
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
    lines = explained(file, "--topic", "pay.DLT", "--attempt", "1")
    assert lines[:4] == [
        "pay.DLT belongs to team pay, as pay/pay.DLT.",
        "No rule matches an unknown exception; the policy is pay/pay.DLT.",
        "Retry 1 is made, to pay.retry.",
        "  retry 1: 5s to 10s after the failure",
    ]
    waits = [line for line in lines if line.startswith("  ")]
    assert (len(waits), waits[-1]) == (10, "  … and so on to retry 12")
    assert lines[-3:] == [
        "Jitter is equal. A letter may ask for its own time (retry-at-ms), at most 1h from now.",
        "After retry 12 the letter is parked in pay.parked;",
        "sooner, if the next retry would come more than 3d after the first failure.",
    ]


def test_explain_says_which_rule_matched(file):
    lines = explained(file, "--topic", "pay.DLT", "--exception", "x.TimeoutError", "--attempt", "2")
    assert lines[1:5] == [
        "Rule 2, *Timeout*, matches x.TimeoutError; the policy is pay/pay.DLT#2.",
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
    ],
)  # fmt: skip
def test_explain_says_when_a_letter_parks(file, args, last):
    assert explained(file, *args)[-1] == last


def test_explain_of_origin_and_of_a_policy_that_does_not_listen(file):
    lines = explained(file, "--topic", "ship.DLT", "--attempt", "12")
    assert "Retry 12 is made, to the topic it first came from (origin)." in lines
    assert "Jitter is equal. A letter may not ask for its own time." in lines
    assert "After retry 12 the letter is parked in the service's parking topic;" in lines


def test_explain_says_what_the_calendar_is(tmp_path):
    path = tmp_path / "p.yaml"
    keys = "quiet_hours: {from: '22:00', to: '06:00', zone: UTC, days: [sat]}, align: {cron: '@hourly'}"
    path.write_text(f"teams: {{t: {{topics: [{{dead_letters: a.DLT, retry_to: a, {keys}}}]}}}}")
    lines = explained(str(path), "--topic", "a.DLT", "--attempt", "1")
    assert "It then waits for the calendar: aligned to @hourly UTC, quiet 22:00–06:00 UTC on sat." in lines


def test_explain_takes_the_file_from_the_environment(file):
    assert run("explain", "--topic", "pay.DLT", "--attempt", "1", RETRY_POLICIES=file).exit_code == 0


@pytest.mark.parametrize("args", [["--attempt=1"], ["--attempt=0", "--file=x"], ["--attempt=x", "--file=x"]])
def test_explain_needs_a_file_and_an_attempt_from_1(args):
    assert run("explain", "--topic", "t", *args).exit_code == 2
