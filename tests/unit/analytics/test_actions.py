"""What to do first."""

from __future__ import annotations

import pytest

pytest.importorskip("ruamel.yaml")

from ruamel.yaml import YAML

from retry.analytics.advice.choose_attempts import Advice, choose
from retry.analytics.advice.evidence import Cell, Evidence
from retry.analytics.advice.policy_rewrite import Advised
from retry.analytics.advice.summary import PerRetry, choose_actions
from retry.analytics.statistics import gamma_quantile


def advised(
    saved: float, name: str = "a.B", verdict: str = "fewer", kept: float = 0.999, recoveries: float = 500.0, **delays: int
) -> Advised:
    at = {int(attempt[1:]): ms for attempt, ms in delays.items()}
    advice = Advice(verdict, 8, 3, at, 900, recoveries, recoveries, kept, 4_000, 4_000 - saved)
    return Advised("shop", name, ("orders.DLT",), False, advice)


def test_the_five_that_save_most_come_first_and_what_changes_nothing_does_not_come() -> None:
    many = [advised(saved, f"E{saved}") for saved in (10, 700, 30, 20, 500, 40, 600)]
    none = [advised(9_000, "kept", "keep"), advised(9_000, "young", "unknown"), advised(-5, "longer", "delays", a1=2_000)]
    none += [advised(9_000, "x" * 401), advised(9_000, "a\nb")]
    assert [each["retries"] for each in choose_actions(many + none)] == [700, 600, 500, 40, 30]


def test_an_action_says_what_it_saves_and_what_it_may_lose() -> None:
    (action,) = choose_actions([advised(1_000, kept=0.992)], per_retry=PerRetry(250, 0.002, 30))
    assert (action["bytes"], action["cost"], action["consumer_ms"]) == (250_000, pytest.approx(2.0), 30_000)
    assert (action["recoveries"], action["recoveries_at_risk"]) == (500.0, pytest.approx(4.0))
    untold = choose_actions([advised(1_000)])[0]
    assert (untold["bytes"], untold["cost"], untold["consumer_ms"]) == (0, None, None)
    # Another delay leaves out no attempt.
    assert choose_actions([advised(9, verdict="delays", kept=1.0, a1=2_000)])[0]["recoveries_at_risk"] == 0


def test_where_nothing_ever_recovered_letters_are_at_risk_that_might_have() -> None:
    kind = Evidence.from_cells([Cell(1, 1_000, 0, 1_500), Cell(2, 1_000, 0, 1_500)])
    advice = choose(kind)
    (action,) = choose_actions([Advised("shop", "a.B", ("orders.DLT",), False, advice)])
    assert (action["verdict"], action["recoveries"], action["letters"], action["retries"]) == ("fewer", 0, 1_500, 1_500)
    # 3.69 in the number of trials is the exact upper bound of a chance that was never seen to come true.
    assert action["recoveries_at_risk"] == pytest.approx(1_500 * gamma_quantile(1, 0.975) / 1_500, rel=0.01)


def test_what_saves_little_for_what_it_may_lose_is_no_action() -> None:
    # Of 500 recoveries as many may be lost as retries are saved: whoever does that has won nothing.
    assert choose_actions([advised(16, kept=0.97), advised(0.4, kept=1.0), advised(149, kept=0.97)]) == []
    assert [each["retries"] for each in choose_actions([advised(151, kept=0.97), advised(1, kept=1.0)])] == [151, 1]


@pytest.mark.parametrize("name", ["a.B", "it's", "x: {y}", "#", "日本", "*[a]?"])
def test_the_rule_of_an_action_is_yaml_that_names_the_exception_the_attempts_and_the_delay(name: str) -> None:
    (action,) = choose_actions([advised(1_000, name, a1=120_000)])
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


def test_with_the_policy_file_an_action_is_a_difference_of_it() -> None:
    (action,) = choose_actions([advised(1_000, "a.Timeout", a1=120_000, a2=120_000)], file=(FILE, "policies.yaml"))
    delays = "max_attempts: 3, attempt: 1..2, backoff: {kind: constant, delay: 2m}"
    assert action["diff"] == [
        "--- policies.yaml", "+++ policies.yaml", "@@ -5,4 +5,6 @@", "         retry_to: orders.retry", "         rules:",
        f"+          - {{exception: 'a.Timeout', {delays}, jitter: proportional}}",
        "+          - {exception: 'a.Timeout', max_attempts: 3}",
        "           - {exception: '*Timeout', max_attempts: 6}", "           - {message: 'no stock', park: true}",
    ]  # fmt: skip
    others = advised(1_000)._replace(topics=("others.DLT",))
    assert [each["diff"] for each in choose_actions([others], file=(FILE, "p"))] == [[]]
    assert [each["diff"] for each in choose_actions([others])] == [[]]
