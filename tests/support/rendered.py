"""What helm makes of the chart: the objects of an installation, and what it refuses."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.support.chart import CHART
from tests.support.tools import run

MINIMAL, FULL = (CHART / "ci" / f"{name}-values.yaml" for name in ("minimal", "full"))
Object = dict[str, Any]


@functools.cache
def render_chart(values: Path, *options: str) -> str:
    done = run("helm", "template", "demo", CHART, "--namespace", "retry", "-f", values, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def objects(values: Path = FULL, *options: str) -> list[Object]:
    return [each for each in yaml.load_all(render_chart(values, *options), yaml.CSafeLoader) if each]


def one(kind: str, name: str, values: Path = FULL, *options: str) -> Object:
    (found,) = [each for each in objects(values, *options) if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def refusal(*options: str, values: Path = MINIMAL) -> str:
    done = run("helm", "template", "demo", CHART, "-f", values, *options)
    assert done.returncode != 0, "it was not refused"
    return done.stderr


def pod_templates(values: Path) -> Iterator[tuple[str, Object]]:
    for each in objects(values):
        if each["kind"] in ("StatefulSet", "Deployment"):
            yield each["metadata"]["name"], each["spec"]["template"]
        elif each["kind"] == "CronJob":
            yield each["metadata"]["name"], each["spec"]["jobTemplate"]["spec"]["template"]


def containers(values: Path) -> Iterator[tuple[str, Object, Object]]:
    for name, template in pod_templates(values):
        for container in [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]:
            yield f"{name}/{container['name']}", container, template["spec"]
