"""What the policy file of now has for letters of which the history tells."""

from __future__ import annotations

from retry.analytics.advice.evidence import Cell, Evidence, Kind
from retry.analytics.advice.replay import plan_delays
from retry.analytics.advice.summary import choose_advice_by_kind
from retry.policies.policy_file import parse

FILE = """\
defaults: {backoff: {kind: constant, delay: 1m}, jitter: none, max_attempts: 3}
teams:
  shop:
    topics:
      - {dead_letters: a.DLT, retry_to: a.retry}
      - dead_letters: b.DLT
        retry_to: b.retry
        rules:
          - {exception: Bad, park: true}
          - {exception: '*', attempt: 3.., backoff: {kind: constant, delay: 1h}, max_attempts: 5}
          - {message: slow, backoff: {kind: constant, delay: 45m}}
"""


def plan(kind: Kind, text: str = FILE) -> list[set[int]] | None:
    found = plan_delays(parse(text, "p"), [kind], {}).get(kind)
    return None if found is None else [set(each) for each in found]


def test_it_is_what_the_file_says_by_attempt_and_rule() -> None:
    assert plan(Kind("shop", "X", ("a.DLT",))) == [{60_000}] * 3
    assert plan(Kind("shop", "X", ("b.DLT",))) == [{60_000}] * 2 + [{3_600_000}] * 3
    assert plan(Kind("shop", "X", ("a.DLT", "b.DLT"))) == [{60_000}] * 2 + [{60_000, 3_600_000}] + [{3_600_000}] * 2
    assert plan(Kind("shop", "Bad", ("b.DLT",))) == []
    assert plan(Kind("shop", "X", ("gone.DLT",))) is None


def test_a_rule_that_asks_for_a_message_is_known_by_its_name() -> None:
    assert plan(Kind("shop", "X", ("b.DLT",), ("shop/b.DLT",))) == [{60_000}] * 2 + [{3_600_000}] * 3
    assert plan(Kind("shop", "X", ("b.DLT",), ("shop/b.DLT#3",))) == [{2_700_000}] * 3
    assert plan(Kind("shop", "X", ("b.DLT",), ("shop/b.DLT#9",))) is None


def test_jitter_shows() -> None:
    text = FILE.replace("jitter: none, max_attempts: 3", "jitter: full, max_attempts: 1")
    (delays,) = plan(Kind("shop", "X", ("a.DLT",)), text) or []
    assert len(delays) == 8
    assert max(delays) > 45_000
    assert min(delays) < 15_000


def test_attempts_that_the_file_has_and_nobody_has_seen_are_not_taken_away() -> None:
    kind = Kind("shop", "X", ("a.DLT",))
    evidence = {kind: Evidence.from_cells([Cell(1, 60_000, 600, 400), Cell(2, 60_000, 0, 400)])}
    assert choose_advice_by_kind(evidence)[kind].attempts == 1
    assert choose_advice_by_kind(evidence, plan_delays(parse(FILE, "p"), evidence, {}))[kind].verdict == "keep"
    two = FILE.replace("max_attempts: 3", "max_attempts: 2")
    assert choose_advice_by_kind(evidence, plan_delays(parse(two, "p"), evidence, {}))[kind].attempts == 1
