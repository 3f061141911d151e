"""What to do first."""

from __future__ import annotations

import pytest

pytest.importorskip("ruamel.yaml")

from ruamel.yaml import YAML

from retry.analytics.advice.actions import actions
from retry.analytics.advice.choose_attempts import Advice
from retry.analytics.advice.policy_rewrite import Advised


def advised(saved: float, name: str = "a.B", verdict: str = "fewer", kept: float = 0.99, **delays: int) -> Advised:
    at = {int(attempt[1:]): ms for attempt, ms in delays.items()}
    return Advised("shop", name, ("orders.DLT",), False, Advice(verdict, 8, 3, at, 900, 500.0, 499.0, kept, 4_000, 4_000 - saved))


def test_the_five_that_save_most_come_first_and_what_changes_nothing_does_not_come() -> None:
    many = [advised(saved, f"E{saved}") for saved in (10, 700, 30, 20, 500, 40, 600)]
    none = [advised(9_000, "kept", "keep"), advised(9_000, "young", "unknown"), advised(-5, "longer", "delays", a1=2_000)]
    none += [advised(9_000, "x" * 401), advised(9_000, "a\nb")]
    assert [each["retries"] for each in actions(many + none)] == [700, 600, 500, 40, 30]


def test_an_action_says_what_it_saves_and_what_it_may_lose() -> None:
    (action,) = actions([advised(1_000, kept=0.992)], bytes_per_retry=250, cost_per_retry=0.002)
    assert (action["bytes"], action["cost"]) == (250_000, pytest.approx(2.0))
    assert (action["recoveries"], action["recoveries_at_risk"]) == (500.0, pytest.approx(4.0))
    assert actions([advised(1_000)])[0]["cost"] is None
    # Another delay leaves out no attempt.
    assert actions([advised(9, verdict="delays", kept=1.0, a1=2_000)])[0]["recoveries_at_risk"] == 0


@pytest.mark.parametrize("name", ["a.B", "it's", "x: {y}", "#", "日本", "*[a]?"])
def test_the_rule_of_an_action_is_yaml_that_names_the_exception_the_attempts_and_the_delay(name: str) -> None:
    (action,) = actions([advised(1_000, name, a1=120_000)])
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
    (action,) = actions([advised(1_000, "a.Timeout", a1=120_000, a2=120_000)], file=(FILE, "policies.yaml"))
    delays = "max_attempts: 3, attempt: 1..2, backoff: {kind: constant, delay: 2m}"
    assert action["diff"] == [
        "--- policies.yaml", "+++ policies.yaml", "@@ -5,4 +5,6 @@", "         retry_to: orders.retry", "         rules:",
        f"+          - {{exception: 'a.Timeout', {delays}, jitter: proportional}}",
        "+          - {exception: 'a.Timeout', max_attempts: 3}",
        "           - {exception: '*Timeout', max_attempts: 6}", "           - {message: 'no stock', park: true}",
    ]  # fmt: skip
    others = advised(1_000)._replace(topics=("others.DLT",))
    assert [each["diff"] for each in actions([others], file=(FILE, "p"))] == [[]]
    assert [each["diff"] for each in actions([others])] == [[]]
