"""The page of notifications shows rules, targets and what was told lately: to each viewer, what concerns their teams alone."""

from __future__ import annotations

import pytest

from retry.console import server as acting
from retry.console.folding.notes import FailingTarget, Told
from retry.console.reading.notes import ToldEvent
from retry.console.web.rights import make_token, read_roles
from retry.policies.policy_file import parse as policy_file
from tests.support.acting_console import POLICIES, ActingReplica
from tests.support.console import NOW_MS, ORIGIN, Served, serve_console, settings_with_rules

RULES = """
targets: {shop-chat: {apprise: /a}, both: {apprise: /b}, ops: {webhook: /c}}
rules:
  - {to: shop-chat, teams: [shop], events: [new_failure], filter: 'exception:com.acme.*', at_least: 5}
  - {to: [both, ops], teams: [shop, bank]}
  - {to: ops, teams: [shpo], quiet_hours: {from: '22:00', to: '06:00', zone: Europe/Berlin}}
  - {to: ops}
"""
EVERY, SHOP = (
    make_token(name, read_roles([grant]) or pytest.fail(grant))
    for name, grant in (("every", "*:viewer"), ("shop", "shop:viewer"))
)


@pytest.fixture
def console() -> Served:
    replica = ActingReplica()
    replica.told.told = {
        ToldEvent("shop-chat", "new_failure/aa"): Told(NOW_MS - 60_000, "New failure: shop", "/failures/aa"),
        ToldEvent("ops", "overdue/bank"): Told(NOW_MS, "Overdue: bank", "/letters?q=team%3Abank"),
        ToldEvent("gone", "new_failure/bb"): Told(NOW_MS, "of a target that there is no more", "javascript:alert(1)"),
        ToldEvent("shop-chat", "new_failure/cc"): Told(NOW_MS - 90_000, "<b>bold</b>", "javascript:alert(1)"),
    }
    replica.told.failing = {"shop-chat": FailingTarget(NOW_MS - 120_000, "<i>said 500</i>")}
    made = serve_console(
        replica, tokens=f"{EVERY[1]}\n{SHOP[1]}", more=[acting.build_acting_routes], settings=settings_with_rules(RULES)
    )
    made.console.registry = lambda: policy_file(POLICIES, "policies.yaml")
    return made


def page(console: Served, token: str) -> str:
    browser = console.browser()
    assert browser.post("/sign-in", data={"token": token}, headers={"Origin": ORIGIN}).status_code == 303
    answer = browser.get("/notifications")
    assert answer.status_code == 200
    return answer.text


def test_who_sees_every_team_sees_all_of_it(console: Served) -> None:
    shown = page(console, EVERY[0])
    assert '<a href="/notifications"' in shown, "it is in the menu"
    assert "<strong>shop-chat</strong> has taken nothing since" in shown
    assert "&lt;i&gt;said 500&lt;/i&gt;" in shown
    assert "exception:com.acme.*</code> from 5 letters on" in shown
    assert "quiet 22:00–06:00 Europe/Berlin" in shown
    assert "shpo <span class=\"badge warn\">no team of the policy file</span>" in shown
    assert '<a href="/letters?q=team%3Abank">Overdue: bank</a>' in shown
    assert "&lt;b&gt;bold&lt;/b&gt;" in shown
    assert "javascript:" not in shown
    assert "no more" not in shown


def test_who_sees_one_team_sees_what_is_of_that_team_alone(console: Served) -> None:
    shown = page(console, SHOP[0])
    assert "shop-chat" in shown
    assert '<a href="/failures/aa">New failure: shop</a>' in shown
    assert not any(name in shown for name in ("bank", "ops", "shpo", "both"))


def test_without_rules_there_is_no_page() -> None:
    browser = serve_console(ActingReplica(), more=[acting.build_acting_routes]).browser()
    assert browser.get("/notifications").status_code == 404
    assert "/notifications" not in browser.get("/").text
