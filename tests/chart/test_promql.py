"""Dashboards and rules ask for declared metrics only, and for labels that these have."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from retry.telemetry.prometheus import DECLARED
from tests.support import promql
from tests.support.chart import ROOT
from tests.support.promql import DASHBOARDS, RULES, Asked, everything, panels, read, series

ALERTS = (ROOT / "docs" / "how-to" / "alerts.md").read_text()


@pytest.mark.parametrize("asked", everything(), ids=lambda asked: asked.where)
def test_metrics_and_labels_are_declared(asked: Asked) -> None:
    declared = series()
    found = read(asked.expression)
    assert found
    for metric, labels in found:
        assert metric in declared
        assert labels <= declared[metric] | promql.TARGET_LABELS


def test_what_is_not_declared_is_found_wherever_it_stands() -> None:
    expression = 'sum by (team) (rate(a{x="1"}[5m])) / on (app) group_left () b unless topk(3, c offset 1h) > 0'
    assert read(expression) == [("a", {"team", "x"}), ("b", {"app"}), ("c", set())]
    assert read('absent(quantile_over_time(0.5, max(-(d{y="2"}))[1d:5m]))') == [("d", {"y"})]


def test_every_declared_metric_is_shown() -> None:
    shown = {metric for asked in promql.of_panels() for metric, _ in read(asked.expression)}
    left_out = {name for name in DECLARED if not any(metric.startswith(name) for metric in shown)}
    # Derived: dashboards divide the sums, since a ratio of one worker is not the app's.
    assert left_out == {"retry_recovery_ratio"}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_is_whole(name: str) -> None:
    dashboard = DASHBOARDS[name]
    assert dashboard["uid"] == f"retry-{name}"
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert {"datasource", "app"} <= variables
    ids = Counter(panel["id"] for panel in dashboard["panels"])
    assert max(ids.values()) == 1
    covered: Counter[tuple[int, int]] = Counter()
    for panel in dashboard["panels"]:
        x, y, w, h = (panel["gridPos"][side] for side in "xywh")
        covered.update((column, line) for column in range(x, x + w) for line in range(y, y + h))
        assert x + w <= 24
    assert max(covered.values()) == 1
    for panel in panels(dashboard):
        assert panel["title"] and panel["description"].endswith(".")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert [target["datasource"] for target in panel["targets"]] == [panel["datasource"]] * len(panel["targets"])
        assert all("$app" in target["expr"] for target in panel["targets"])
        assert panel["type"] == "heatmap" or "unit" in panel["fieldConfig"]["defaults"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_links_of_panels_lead_to_dashboards_and_alerts_that_there_are_and_fill_in_variables_that_these_have(name: str) -> None:
    alerts = {f"${{runbooks}}/alerts.md#{rule['alert'].lower()}" for rule in RULES}
    variables = {uid: {each["name"] for each in dashboard["templating"]["list"]} for uid, dashboard in DASHBOARDS.items()}
    for panel in panels(DASHBOARDS[name]):
        for link in panel.get("links", []):
            assert link["url"] in alerts
            assert "runbooks" in variables[name]
        for link in panel.get("fieldConfig", {}).get("defaults", {}).get("links", []):
            match = re.fullmatch(r"/d/retry-(\w+)/retry-\1\?(.*)", link["url"])
            assert match, link["url"]
            given = set(re.findall(r"var-(\w+)=|\$\{(\w+):queryparam\}", match[2]))
            assert {one or other for one, other in given} <= variables[match[1]]
            label = re.search(r"__field\.labels\.(\w+)", match[2])
            assert label
            assert all(f"by ({label[1]}" in target["expr"] for target in panel["targets"]), panel["title"]


def test_dashboards_lead_deeper_and_say_when_workers_and_policy_files_changed() -> None:
    for dashboard in DASHBOARDS.values():
        names = [annotation["name"] for annotation in dashboard["annotations"]["list"]]
        assert names == ["Policy file in use", "Policy file refused", "Worker began"]
    linked = {
        name: sum(bool(panel.get("links") or panel.get("fieldConfig", {}).get("defaults", {}).get("links")) for panel in shown)
        for name, shown in ((name, panels(dashboard)) for name, dashboard in DASHBOARDS.items())
    }
    assert linked["operators"] >= 10
    assert linked["analysts"] >= 4


def test_whoever_sees_what_an_alert_is_about_is_one_click_from_what_to_do() -> None:
    asked = {rule["alert"]: {metric for metric, _ in read(rule["expr"])} for rule in RULES}
    for panel in (panel for dashboard in DASHBOARDS.values() for panel in panels(dashboard)):
        shown = {metric for target in panel["targets"] for metric, _ in read(promql.fill_expression(target["expr"]))}
        for link in panel.get("links", []):
            alert = link["title"].partition(":")[0]
            assert link["url"].endswith(f"#{alert.lower()}")
            assert asked.get(alert, shown) & shown, (panel["title"], alert)
            asked.pop(alert, None)
    assert asked == {}


def test_every_alert_says_what_to_do() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names))
    sections = [line.removeprefix("## ") for line in ALERTS.splitlines() if line.startswith("## ")]
    assert sections == names
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["annotations"]["runbook"] == f"docs/how-to/alerts.md#{rule['alert'].lower()}"
