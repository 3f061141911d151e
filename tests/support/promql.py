"""The PromQL expressions of dashboards and rules, and what is asked of them: metrics and their labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import promql_parser as promql
import yaml

from retry.telemetry.prometheus import DECLARED, HISTOGRAM
from tests.support.chart import CHART

DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((CHART / "files" / "dashboards").glob("*.json"))}
RULES = [
    rule
    for path in sorted((CHART / "files" / "rules").glob("*.yaml"))
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
]
# What Prometheus, the ServiceMonitor and `retry worker --processes` add to every series.
TARGET_LABELS = {"app", "instance", "job", "namespace", "pod", "process"}
# As Grafana fills them in.
_VARIABLES = {"$__rate_interval": "1m", "$__range": "10m", "$app": ".*", "$team": ".*", "$instance": ".*"}
_LABEL_VALUES = re.compile(r"label_values\((?P<expression>.*), (?P<label>\w+)\)")


class Asked(NamedTuple):
    """An expression and where it stands."""

    where: str
    expression: str


class Read(NamedTuple):
    """A metric as an expression names it, and all labels that it asks of it."""

    metric: str
    labels: frozenset[str]


def fill_expression(expression: str) -> str:
    """The expression as Prometheus is given it by Grafana."""
    for variable, value in _VARIABLES.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression, f"an unknown variable in {expression}"
    return expression


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """List the panels of a dashboard that ask for something."""
    return [panel for panel in dashboard["panels"] if panel.get("targets")]


def of_panels() -> Iterator[Asked]:
    """Yield what panels ask of Prometheus."""
    for name, dashboard in DASHBOARDS.items():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                yield Asked(f"{name}: {panel['title']} {target['refId']}", fill_expression(target["expr"]))


def of_variables() -> Iterator[Asked]:
    """Yield what variables of dashboards ask; the label is asked for as by an aggregation."""
    for name, dashboard in DASHBOARDS.items():
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                asked = _LABEL_VALUES.fullmatch(variable["query"]["query"])
                assert asked, variable["query"]
                yield Asked(f"{name}: ${variable['name']}", f"sum by ({asked['label']}) ({fill_expression(asked['expression'])})")


def of_annotations() -> Iterator[Asked]:
    """Yield what annotations ask of Prometheus."""
    for name, dashboard in DASHBOARDS.items():
        for annotation in dashboard["annotations"]["list"]:
            yield Asked(f"{name}: {annotation['name']}", fill_expression(annotation["expr"]))


def of_rules() -> Iterator[Asked]:
    """Yield what rules ask of Prometheus."""
    for rule in RULES:
        yield Asked(rule["alert"], rule["expr"])


def everything() -> list[Asked]:
    """All expressions of the chart."""
    return [*of_panels(), *of_variables(), *of_annotations(), *of_rules()]


def read(expression: str) -> list[Read]:
    """The metrics of an expression, each with the labels that matchers, aggregations and joins around it name."""
    return list(_read(promql.parse(expression), frozenset()))


def _read(node: Any, asked: frozenset[str]) -> Iterator[Read]:
    if isinstance(node, promql.VectorSelector):
        yield Read(node.name or "", asked | {matcher.name for matcher in node.matchers.matchers})
        return
    if isinstance(node, promql.AggregateExpr):
        # Labels that an aggregation drops cannot be asked for above it.
        asked = frozenset(node.modifier.labels) if node.modifier else frozenset()
    if isinstance(node, promql.BinaryExpr) and node.modifier and node.modifier.matching:
        asked |= frozenset(node.modifier.matching.labels)
    for child in _children(node):
        yield from _read(child, asked)


def _children(node: Any) -> list[Any]:
    if isinstance(node, promql.BinaryExpr):
        return [node.lhs, node.rhs]
    if isinstance(node, promql.Call):
        return list(node.args)
    if isinstance(node, promql.MatrixSelector):
        return [node.vector_selector]
    return [node.expr] if hasattr(node, "expr") else []


def series() -> dict[str, set[str]]:
    """Declared names as they stand on a metrics page, and the labels of each."""
    found = {}
    for metric in DECLARED.values():
        labels = set(metric.labels)
        if metric.type == HISTOGRAM:
            found |= {f"{metric.name}_bucket": labels | {"le"}, f"{metric.name}_sum": labels, f"{metric.name}_count": labels}
        else:
            found[metric.name] = labels
    return found
