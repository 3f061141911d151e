"""Where a letter goes, when the policy leaves a part of the name to it, and what a team may send to at all."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.dead_letters.failure import Failure
from retry.policies.policy_file import parse
from retry.policies.topic_names import find_highest_group, find_template_fault, find_topic_fault, read_template

PATTERN = re.compile(r"([a-z]*)\.(x|(y))\.DLT")
LETTER = Failure(origin_topic="orders", consumer_group="billing")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("origin", "orders"),
        ("{origin}", "orders"),
        ("{origin}.{group}.retry", "orders.billing.retry"),
        ("retry-{dead_letters}", "retry-pay.x.DLT"),
        ("{1}_{2}", "pay_x"),
        ("{2}{2}", "xx"),
        ("{1}.{3}", None),
    ],
)
def test_a_template_is_filled_in(written: str, name: str | None) -> None:
    assert find_template_fault(written) is None
    found = read_template(written, PATTERN)
    assert found is not None
    assert found.fill_name(LETTER, "pay.x.DLT") == name


@pytest.mark.parametrize("written", ["plain.topic", "origin.retry", None])
def test_a_plain_name_is_no_template(written: str | None) -> None:
    assert read_template(written, PATTERN) is None


@pytest.mark.parametrize("written", ["origin", "{origin}.retry", "{group}", "x{1}"])
def test_what_a_letter_does_not_say_is_not_guessed(written: str) -> None:
    assert read_template(written).fill_name(Failure(), "pay.x.DLT") is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "origin", ["", "..", "__consumer_offsets", "a b", "../x", "ä", "a\n", "a\0", "{group}", "x" * 250, "\ud800"]
)
def test_what_is_no_topic_name_is_no_target(origin: str) -> None:
    assert read_template("origin").fill_name(Failure(origin_topic=origin), "d") is None  # type: ignore[union-attr]


def test_braces_in_a_header_are_not_filled_in_again() -> None:
    letter = Failure(origin_topic="{group}", consumer_group="g")
    assert read_template("{origin}-{group}").fill_name(letter, "d") is None  # type: ignore[union-attr]


def test_what_a_header_completes_to_an_internal_name_is_no_target() -> None:
    made = read_template("{origin}_{group}")
    assert made.fill_name(Failure(origin_topic="_", consumer_group="x"), "d") is None  # type: ignore[union-attr]


@given(st.text(alphabet=string.ascii_letters + "{}_.0123 é", max_size=30), st.text(max_size=300), st.text(max_size=300))
def test_any_template_gives_a_topic_name_or_nothing(written: str, origin: str, group: str) -> None:
    found = (
        read_template(written, PATTERN) if find_template_fault(written) is None and find_highest_group(written) <= 3 else None
    )
    name = found.fill_name(Failure(origin_topic=origin, consumer_group=group), "pay.x.DLT") if found else None
    assert name is None or find_topic_fault(name) is None


TEXT = r"""
targets:
  pay.a.retry: {rate: 1/s}
teams:
  pay:
    topics:
      - dead_letters: {pattern: 'pay\.(.*)\.DLT'}
        retry_to: 'pay.{1}.retry'
        park_to: pay.parked
        allowed_targets: [pay.a.retry, pay.b.retry, pay.spare, pay.parked]
        origins: [pay.a]
        rules:
          - {null_value: true, retry_to: '{origin}'}
          - {attempt: 3.., retry_to: pay.b.retry}
          - {age: 1d, park_to: pay.spare, park: true}
  ship:
    park_to: ship.parked
    topics:
      - dead_letters: ship.DLT
        retry_to: ship.retry
        rules:
          - {attempt: 2, retry_to: ship.slow}
          - {attempt: 3, retry_to: ship.never, park_to: ship.odd, park: true}
      - {dead_letters: ship.other, retry_to: ship.again, allowed_targets: [ship.again, ship.hand, ship.parked]}
"""


def test_a_plan_gives_the_name_that_the_pattern_implies() -> None:
    usual = parse(TEXT, "p.yaml").route("pay.a.DLT").default_plan
    assert (usual.retry_to, usual.fixed_target) == ("pay.{1}.retry", None)
    assert usual.resolve_target(Failure(), "pay.a.DLT") == "pay.a.retry"
    # Whether that is allowed is for the caller to ask.
    assert usual.resolve_target(Failure(), "pay.zz.DLT") == "pay.zz.retry"


def test_a_plan_with_a_fixed_target_asks_the_letter_nothing() -> None:
    fixed = parse(TEXT, "p.yaml").route("pay.a.DLT").rules[1].plan
    assert (fixed.fixed_target, fixed.resolve_target(Failure(origin_topic="x"), "d")) == ("pay.b.retry", "pay.b.retry")


def test_a_plan_without_a_target_has_none() -> None:
    assert parse("", "p.yaml").route("any").default_plan.resolve_target(LETTER, "any") is None


def test_a_team_may_send_where_its_routes_may() -> None:
    registry = parse(TEXT, "p.yaml")
    pay = {"pay.a.retry", "pay.b.retry", "pay.spare", "pay.parked"}
    ship = {"ship.retry", "ship.slow", "ship.parked", "ship.odd", "ship.again", "ship.hand"}
    assert {topic for topic in registry.list_targets() if registry.permits_target("pay", topic)} == pay
    assert {topic for topic in registry.list_targets() if registry.permits_target("ship", topic)} == ship
    assert registry.list_targets() == pay | ship
    for team, target in [("pay", "ship.retry"), ("ship", "pay.parked"), ("nobody", "ship.retry"), ("pay", "pay.zz.retry"),
                         ("ship", "ship.never"), ("ship", ""), ("", ""), ("default", "ship.retry")]:  # fmt: skip
        assert not registry.permits_target(team, target)


def test_retries_go_to_fewer_topics_than_letters() -> None:
    registry = parse(TEXT, "p.yaml")
    assert registry.retry_targets() == {
        "pay.a.retry", "pay.b.retry", "ship.retry", "ship.slow", "ship.again"
    }  # fmt: skip
    assert registry.parking() == {"pay.parked", "pay.spare", "ship.parked", "ship.odd"}


def test_records_are_fetched_from_origins_and_from_where_retries_go() -> None:
    registry = parse(TEXT, "p.yaml")
    assert registry.route("pay.a.DLT").origins == {"pay.a", "pay.a.retry", "pay.b.retry", "pay.spare", "pay.parked"}
    assert registry.route("ship.DLT").origins == {"ship.retry", "ship.slow", "ship.never"}
    assert registry.default.origins == frozenset()
