"""The page of notifications: which rules there are, which targets answer, and what was told lately.

| path | what it shows |
| --- | --- |
| `GET /notifications` | rules whose teams a viewer may see, their targets, and the last hundred messages to those |
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from retry.console.folding.notes import FailingTarget, Told
from retry.console.notifications import rule_file
from retry.console.notifications.events import TITLES
from retry.console.notifications.rule_file import Rule, RuleFile, Target
from retry.console.rows import Scope
from retry.console.web.app import Console, console_of, render_page, viewer_of
from retry.console.web.rights import Role, Sight, needs
from retry.reloaded_file import ReloadedFile

PART = "notifications"
_SHOWN_MAX = 100


class TargetRow(NamedTuple):
    """A target, since when it does not answer, and what it was told last; None where there is nothing of that."""

    target: Target
    failing: FailingTarget | None
    last: Told | None


def build_routes(console: Console) -> list[Route]:
    rules = rule_file.load(console.settings)
    if rules is None:
        return []
    console.keep_fresh(PART, "notifications-live.html", lambda sight, _argument: _build_page(console, sight, rules))

    @needs(Role.VIEWER)
    def render_notifications(request: Request) -> Response:
        shown = _build_page(console_of(request), viewer_of(request).sight(), rules)
        return render_page(request, "notifications.html", live=(PART, ""), **shown)

    return [Route("/notifications", render_notifications)]


def _build_page(console: Console, sight: Sight, rules: ReloadedFile[RuleFile]) -> dict[str, Any]:
    told, failing, chosen = console.replica.told.list_told(), console.replica.told.list_failing(), rules.current()
    may_see = partial(_may_see, sight.scope)
    # What a target was told names teams: whoever sees it sees all teams that it is told of.
    names = [name for name in chosen.targets if all(may_see(rule) for rule in chosen.rules if rule.target == name)]
    if sight.scope is not None:
        names = [name for name in names if any(rule.target == name for rule in chosen.rules)]
    lately = sorted(((event.target, record) for event, record in told.items() if event.target in names),
                    key=lambda each: -each[1].at_ms)  # fmt: skip
    last: dict[str, Told] = {}
    for name, record in lately:
        last.setdefault(name, record)
    teams = {route.team for route in console.registry().list_routes()}
    return {
        "targets": [TargetRow(chosen.targets[name], failing.get(name), last.get(name)) for name in names],
        "rules": [rule for rule in chosen.rules if may_see(rule)], "lately": lately[:_SHOWN_MAX], "titles": TITLES,
        "order": rule_file.EVENTS, "trouble": rules.trouble() if sight.scope is None else "", "known_teams": teams,
    }  # fmt: skip


def _may_see(scope: Scope, rule: Rule) -> bool:
    return scope is None or (rule.teams is not None and scope.issuperset(rule.teams))
