"""What to do first."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

pytest.importorskip("ruamel.yaml")

from ruamel.yaml import YAML

from retry.analytics.advice.actions import PerRetry, choose_actions, follow_up
from retry.analytics.advice.choose_attempts import Advice, choose
from retry.analytics.advice.evidence import Cell, Evidence, Kind
from retry.analytics.advice.policy_rewrite import Advised, add_rules, list_amended_lines
from retry.analytics.statistics import gamma_quantile

Counted = Mapping[int, tuple[int, int]]


def advised_kind(
    saved: float, name: str = "a.B", verdict: str = "fewer", kept: float = 0.999, recoveries: float = 500.0, **delays: int
) -> Advised:
    at = {int(attempt[1:]): ms for attempt, ms in delays.items()}
    advice = Advice(verdict, 8, 3, at, 900, recoveries, recoveries, kept, 4_000, 4_000 - saved)
    return Advised("shop", name, ("orders.DLT",), False, advice)


def test_the_five_that_save_most_come_first_and_what_changes_nothing_does_not_come() -> None:
    many = [advised_kind(saved, f"E{saved}") for saved in (10, 700, 30, 20, 500, 40, 600)]
    none = [
        advised_kind(9_000, "kept", "keep"),
        advised_kind(9_000, "young", "unknown"),
        advised_kind(-5, "longer", "delays", a1=2_000),
    ]
    none += [advised_kind(9_000, "x" * 401), advised_kind(9_000, "a\nb")]
    assert [each["retries"] for each in choose_actions(many + none)] == [700, 600, 500, 40, 30]


def test_an_action_says_what_it_saves_and_what_it_may_lose() -> None:
    (action,) = choose_actions([advised_kind(1_000, kept=0.992)], per_retry=PerRetry(250, 0.002, 30))
    assert (action["bytes"], action["cost"], action["consumer_ms"]) == (250_000, pytest.approx(2.0), 30_000)
    assert (action["recoveries"], action["recoveries_at_risk"]) == (500.0, pytest.approx(4.0))
    untold = choose_actions([advised_kind(1_000)])[0]
    assert (untold["bytes"], untold["cost"], untold["consumer_ms"]) == (0, None, None)
    # Another delay leaves out no attempt.
    assert choose_actions([advised_kind(9, verdict="delays", kept=1.0, a1=2_000)])[0]["recoveries_at_risk"] == 0


def test_where_nothing_ever_recovered_letters_are_at_risk_that_might_have() -> None:
    kind = Evidence.from_cells([Cell(1, 1_000, 0, 1_500), Cell(2, 1_000, 0, 1_500)])
    advice = choose(kind)
    (action,) = choose_actions([Advised("shop", "a.B", ("orders.DLT",), False, advice)])
    assert (action["verdict"], action["recoveries"], action["letters"], action["retries"]) == ("fewer", 0, 1_500, 1_500)
    # 3.69 in the number of trials is the exact upper bound of a chance that was never seen to come true.
    assert action["recoveries_at_risk"] == pytest.approx(1_500 * gamma_quantile(1, 0.975) / 1_500, rel=0.01)


def test_what_saves_little_for_what_it_may_lose_is_no_action() -> None:
    # Of 500 recoveries as many may be lost as retries are saved: whoever does that has won nothing.
    assert choose_actions([advised_kind(16, kept=0.97), advised_kind(0.4, kept=1.0), advised_kind(149, kept=0.97)]) == []
    assert [each["retries"] for each in choose_actions([advised_kind(151, kept=0.97), advised_kind(1, kept=1.0)])] == [151, 1]


@pytest.mark.parametrize("name", ["a.B", "it's", "x: {y}", "#", "日本", "*[a]?"])
def test_the_rule_of_an_action_is_yaml_that_names_the_exception_the_attempts_and_the_delay(name: str) -> None:
    (action,) = choose_actions([advised_kind(1_000, name, a1=120_000)])
    delay, fewer = YAML(typ="safe").load("\n".join(action["rule"]))
    assert delay["backoff"] == {"kind": "constant", "delay": "2m"}
    assert (delay["attempt"], fewer["max_attempts"], fewer.keys()) == (1, 3, {"exception", "max_attempts"})
    assert fewer["exception"].replace("[*]", "*").replace("[[]", "[").replace("[?]", "?") == name


FILE = """\
teams:
  shop:
    topics:
      - dead_letters: orders.DLT   # ours
        retry_to: orders.retry
        rules:
          - {exception: '*Timeout', max_attempts: 6}
          - {message: 'no stock', park: true}
"""


def test_with_the_policy_file_an_action_has_the_topic_as_it_stands_there_afterwards() -> None:
    (action,) = choose_actions([advised_kind(1_000, "a.Timeout", a1=120_000, a2=120_000)], file=(FILE, "policies.yaml"))
    delays = "max_attempts: 3, attempt: 1..2, backoff: {kind: constant, delay: 2m}"
    assert action["section"] == [
        "      - dead_letters: orders.DLT   # ours", "        retry_to: orders.retry", "        rules:",
        f"          - {{exception: 'a.Timeout', {delays}, jitter: proportional}}",
        "          - {exception: 'a.Timeout', max_attempts: 3}",
        "          - {exception: '*Timeout', max_attempts: 6}", "          - {message: 'no stock', park: true}",
    ]  # fmt: skip
    others = advised_kind(1_000)._replace(topics=("others.DLT",))
    assert [each["section"] for each in choose_actions([others], file=(FILE, "p"))] == [[]]
    assert [each["section"] for each in choose_actions([others])] == [[]]


@pytest.mark.parametrize("more", [
    "      - {dead_letters: b.DLT, retry_to: b}\n",
    "\n      # b\n      - dead_letters: b.DLT\n        retry_to: b\n  other:\n    topics: [{dead_letters: c.DLT, retry_to: c}]\n",
    "  other:\n    topics: [\n      {dead_letters: c.DLT, retry_to: c}]\n",
])  # fmt: skip
@pytest.mark.parametrize(
    ("team", "topics"), [("shop", ("orders.DLT",)), ("shop", ("orders.DLT", "b.DLT")), ("other", ("c.DLT",))]
)
def test_what_is_copied_is_yaml_and_in_the_place_of_the_topic_it_is_the_new_file(
    more: str, team: str, topics: tuple[str, ...]
) -> None:
    text, one = FILE + more, advised_kind(1_000)._replace(team=team, topics=topics)
    new, added = add_rules(text, "p", [one])
    section = list_amended_lines(text, "p", one)
    assert bool(section) == bool(added)
    if section:
        copied = "\n".join(section)
        assert all(line in new.splitlines() for line in section)
        assert len(topics) > 1 or copied in new
        made = YAML(typ="safe").load(copied)
        wanted = YAML(typ="safe").load(new)
        changed = [each for each in wanted["teams"][team]["topics"] if each.get("rules") and each["dead_letters"] in topics]
        assert made in (changed, wanted)


def test_an_action_is_a_sentence() -> None:
    never = Evidence.from_cells([Cell(n, 1_000, 0, 731) for n in range(1, 7)])
    (stop,) = choose_actions([Advised("alpha", "com.a.Never", ("a.DLT",), False, choose(never))], period_ms=7 * 86_400_000)
    assert stop["sentence"] == (
        "Stop retrying com.a.Never in alpha: 731 letters, none ever recovered; saves 3,655 retries a week"
    )
    (fewer,) = choose_actions([advised_kind(1_000, kept=0.992, a2=120_000)], period_ms=14 * 86_400_000)
    assert fewer["sentence"] == (
        "Retry a.B in shop only 3 times, not 8 and wait 2m before attempt 2: costs at most 4 of 500 recoveries;"
        " saves 500 retries a week"
    )
    (wait,) = choose_actions([advised_kind(40, verdict="delays", kept=1.0, a1=120_000, a2=120_000)], period_ms=86_400_000)
    assert wait["sentence"] == (
        "Wait 2m before attempts 1 to 2 of a.B in shop: of 900 letters, those that waited so long recovered more often;"
        " would have saved 40 retries in 1 d"
    )
    two = choose_actions([advised_kind(1_000), advised_kind(900)._replace(topics=("b.DLT", "c.DLT"))])
    assert [each["sentence"].partition(" only")[0] for each in two] == [
        "Retry a.B in shop (orders.DLT)", "Retry a.B in shop (b.DLT and 1 more)",
    ]  # fmt: skip
    (odd,) = choose_actions([advised_kind(1_000)._replace(team="\x1b[2J\u202e")])
    assert odd["sentence"].isprintable()


SINCE = {"done": {1: (0, 900), 2: (0, 3)}, "part": {1: (0, 900), 2: (0, 500)}, "open": {1: (0, 900), 2: (0, 899), 3: (0, 899)}}


@pytest.mark.parametrize(("state", "cells", "retries"), [
    ("done", SINCE["done"], 3), ("part", SINCE["part"], 500), ("open", SINCE["open"], 1_798), ("unknown", {1: (7, 0)}, 0),
])  # fmt: skip
def test_an_action_was_done_where_letters_since_got_no_more_attempts(state: str, cells: Counted, retries: int) -> None:
    evidence = Evidence.from_cells([Cell(1, 1_000, 0, 1_500), Cell(2, 1_000, 0, 1_500)])
    then = choose_actions([Advised("shop", "a.B", ("orders.DLT", "b.DLT"), False, choose(evidence))])
    since = Evidence.from_cells([Cell(n, 1_000, *counts) for n, counts in cells.items()])
    elsewhere = Evidence.from_cells([Cell(n, 1_000, 0, 5_000) for n in range(1, 9)])
    places = {Kind("shop", "a.B", ("orders.DLT",), ("x",)): since, Kind("shop", "a.B", ("other.DLT",)): elsewhere,
              Kind("shop", "a.C", ("orders.DLT",)): elsewhere}  # fmt: skip
    (row,) = follow_up(then, places)
    assert (row["state"], row["letters"], row["retries"]) == (state, since.letters, retries)
    assert row["sentence"] == then[0]["sentence"] and row["became"]
    (none,) = follow_up(then, {kind: each for kind, each in places.items() if each is elsewhere})
    assert (none["state"], none["letters"]) == ("gone", 0)


@pytest.mark.parametrize(("delay_ms", "state"), [(110_000, "done"), (10_000, "open")])
def test_another_delay_was_taken_where_letters_since_wait_about_so_long(delay_ms: int, state: str) -> None:
    then = choose_actions([advised_kind(9, verdict="delays", kept=1.0, a1=120_000)])
    since = Evidence.from_cells([Cell(1, delay_ms, 40, 60)])
    (row,) = follow_up(then, {Kind("shop", "a.B", ("orders.DLT",)): since})
    assert (row["state"], row["retries"]) == (state, 0 if state == "done" else 100)
