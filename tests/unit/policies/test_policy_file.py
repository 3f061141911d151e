"""The policy file of the documentation is parsed to what it says, and keys are looked for from the inside out."""

from __future__ import annotations

from pathlib import Path

import pytest

from backoff import Constant, Exponential, Steps
from backoff.parse import DEFAULT
from backoff.policy import JITTERS
from retry.errors import PolicyFileInvalid
from retry.policies.policy_file import load, parse
from tests.support.plans import plan_for

EXAMPLE = r"""
defaults:
  backoff: {kind: exponential, delay: 10s, factor: 2, max_delay: 1h}
  jitter: full                  # none | full | equal | proportional
  max_attempts: 8
  max_age: 3d
  honour_retry_at: true
teams:
  payments:
    topics:
      - dead_letters: payments.orders.DLT     # or {pattern: 'payments\..*\.DLT'}
        retry_to: payments.orders.retry       # a topic, or origin
        park_to: payments.orders.parked
        allowed_targets: [payments.orders.retry, payments.orders.parked]
        rules:                                # first match wins, overrides any key above
          - {exception: '*.ValidationException', park: true}
          - {exception: '*Timeout*', backoff: {kind: steps, delays: [1m, 5m, 30m]}}
"""
LAYERS = """
defaults: {max_attempts: 3}
teams:
  a:
    max_age: 1d
    park_to: a.parked
    retry_to: a.retry
    topics:
      - dead_letters: a.one
        jitter: none
        rules:
          - {exception: 'x.*', max_attempts: 5, retry_to: a.slow, park_to: a.odd, honour_retry_at: false}
          - {exception: '*', backoff: {kind: constant, delay: 1s}}
      - {dead_letters: {pattern: 'a\\.two[0-9]*'}, retry_to: origin, allowed_targets: [z.in, a.parked]}
      - {dead_letters: {pattern: '^(b|c)\\..*$'}, retry_to: other}
"""


def test_the_example_says_what_it_says():
    route = parse(EXAMPLE, "p.yaml").route("payments.orders.DLT")
    assert (route.team, route.name) == ("payments", "payments/payments.orders.DLT")
    assert (route.default_plan.retry_to, route.default_plan.park_to) == ("payments.orders.retry", "payments.orders.parked")
    assert route.allowed_targets == {"payments.orders.retry", "payments.orders.parked"}
    usual = plan_for(route, "java.lang.IllegalStateException")
    assert (usual.park, usual.name) == (False, route.name)
    assert usual.policy.curve == Exponential(10_000, 2.0, 3_600_000)
    assert usual.policy.jitter is JITTERS["full"]
    assert (usual.policy.max_attempts, usual.policy.max_age_ms) == (8, 3 * 86_400_000)
    assert (usual.policy.max_delay_ms, usual.policy.honour_retry_at) == (3_600_000, True)


def test_the_rules_of_the_example_say_what_they_say():
    route = parse(EXAMPLE, "p.yaml").route("payments.orders.DLT")
    invalid, timeout = plan_for(route, "com.example.ValidationException"), plan_for(route, "java.net.SocketTimeoutException")
    assert (invalid.park, invalid.name) == (True, route.name + "#1")
    assert (timeout.park, timeout.name) == (False, route.name + "#2")
    assert timeout.policy.curve == Steps((60_000, 300_000, 1_800_000), 3_600_000)
    assert timeout.policy.max_attempts == 8


def test_the_readme_shows_a_file_that_loads():
    readme = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    registry = parse(readme.partition("```yaml\n")[2].partition("```")[0], "README.md")
    route = registry.route("payments.orders.DLT")
    assert (route.default_plan.policy, route.default_plan.retry_to) == (DEFAULT, "payments.orders.retry")
    assert [rule.plan.park for rule in route.rules] == [True]


def test_the_builtin_defaults_are_those_of_the_example():
    assert parse(EXAMPLE, "p.yaml").default.default_plan.policy == DEFAULT == parse("", "p.yaml").default.default_plan.policy


def test_the_inner_key_wins():
    plan = plan_for(parse(LAYERS, "p.yaml").route("a.one"), "x.Y")
    assert (plan.policy.max_attempts, plan.policy.max_age_ms) == (5, 86_400_000)
    assert (plan.policy.jitter, plan.policy.honour_retry_at) == (JITTERS["none"], False)
    assert (plan.retry_to, plan.park_to) == ("a.slow", "a.odd")


def test_what_the_inner_levels_leave_out_comes_from_outside():
    plan = plan_for(parse(LAYERS, "p.yaml").route("a.one"), "other")
    assert plan.policy.curve == Constant(1_000, 3_600_000)
    assert (plan.policy.max_attempts, plan.policy.max_age_ms) == (3, 86_400_000)
    assert (plan.retry_to, plan.park_to, plan.name) == ("a.retry", "a.parked", "a/a.one#2")


def test_a_calendar_is_inherited_replaced_and_switched_off():
    night = "{from: '22:00', to: '06:00', zone: UTC}"
    rules = "[{exception: A, quiet_hours: none}, {exception: B, align: none, quiet_hours: none}]"
    topic = f"{{dead_letters: x, retry_to: y, align: {{cron: '@hourly'}}, rules: {rules}}}"
    route = parse(f"{{defaults: {{quiet_hours: [{night}]}}, teams: {{t: {{topics: [{topic}]}}}}}}", "p.yaml").route("x")
    assert route.default_plan.policy.calendar.describe_rules() == "aligned to @hourly UTC, quiet 22:00–06:00 UTC"
    assert plan_for(route, "A").policy.calendar.describe_rules() == "aligned to @hourly UTC"
    assert plan_for(route, "B").policy.calendar is None


def test_patterns_are_anchored_for_librdkafka():
    assert parse(LAYERS, "p.yaml").subscription() == ["a.one", r"^a\.two[0-9]*$", r"^((b|c)\..*)$"]


def test_targets_are_every_topic_named_to_write_to():
    assert parse(LAYERS, "p.yaml").list_targets() == {"a.retry", "a.slow", "a.parked", "a.odd", "z.in", "other"}


def test_what_a_topic_overrides_of_its_team_needs_no_permission():
    text = "teams: {t: {retry_to: origin, park_to: p, topics: [{dead_letters: x, retry_to: y, park_to: z%s}]}}"
    assert parse(text % "", "p.yaml").route("x").default_plan.retry_to == "y"
    assert parse(text % ", allowed_targets: [y, z]", "p.yaml").route("x").default_plan.park_to == "z"


def test_a_file_without_teams_reads_nothing():
    registry = parse("defaults: {max_attempts: 1}", "p.yaml")
    assert (registry.subscription(), registry.list_targets()) == ([], set())
    assert plan_for(registry.route("any"), None).policy.max_attempts == 1


def test_load_reads_utf_8_with_or_without_a_mark(tmp_path):
    for mark in (b"", b"\xef\xbb\xbf"):
        (tmp_path / "p.yaml").write_bytes(mark + "# Grüße\n".encode() + EXAMPLE.encode())
        assert load(tmp_path / "p.yaml").reads_topic("payments.orders.DLT")


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"teams: {}\n# \xff\n", 2, "UTF-8"),
        (b"# " + b"x" * (1 << 20), 1, "larger than 1,048,576 bytes"),
        (b"# " + "é".encode() * (1 << 19), 1, "larger than 1,048,576 bytes"),
    ],
    ids=["bytes", "large", "large within a character"],
)
def test_a_file_that_is_no_text_is_refused(tmp_path, content, line, reason):
    path = tmp_path / "p.yaml"
    path.write_bytes(content)
    with pytest.raises(PolicyFileInvalid, match=reason) as refused:
        load(path)
    assert (refused.value.file, refused.value.line, refused.value.path) == (str(path), line, "file")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(PolicyFileInvalid, match="No such file"):
        load(tmp_path / "p.yaml")


def test_what_becomes_of_a_retry_that_is_too_old_for_its_topic_is_inherited_and_overridden() -> None:
    text = """
    defaults: {old_timestamp: park}
    teams:
      a: {topics: [{dead_letters: a.DLT, retry_to: a}]}
      b:
        old_timestamp: now
        topics: [{dead_letters: b.DLT, retry_to: b}, {dead_letters: c.DLT, retry_to: c, old_timestamp: park}]
    """
    found = parse(text, "policies.yaml")
    assert [found.route(f"{name}.DLT").renews_timestamps for name in "abc"] == [False, True, False]
    assert parse(text.replace("defaults: {old_timestamp: park}", ""), "policies.yaml").route("a.DLT").renews_timestamps
