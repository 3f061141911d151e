"""What stands in `examples/deploy-timers` is of this version (2-7, 2-9, 2-12)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from retry import settings
from retry.__main__ import main
from retry.policies.policy_file import load

FOLDER = Path(__file__).parents[3] / "examples" / "deploy-timers"


def sample() -> dict[str, str]:
    lines = [line for line in (FOLDER / "env.sample").read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)  # type: ignore[misc]


def test_2_7_2_9_the_sample_has_every_variable_and_can_be_used() -> None:
    assert settings.VARIABLES.keys() == sample().keys()
    assert settings.read_settings(sample()).app_id == "retry"


def test_2_7_every_service_is_a_command_of_ours_and_its_files_are_there() -> None:
    compose: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    ours = {name: each for name, each in compose["services"].items() if name != "kafka"}
    assert {each["command"][0] for each in ours.values()} == {"topics", "worker", "api"} <= main.commands.keys()
    mounted = {volume.split(":")[0] for each in ours.values() for volume in each["volumes"]}
    # Tokens are made, and never in a repository.
    assert {path for path in mounted if not (FOLDER / path).exists()} == {"./tokens"}
    assert load(FOLDER / "policies.yaml").reads_topic("orders.DLT")


def test_2_7_2_9_2_11_the_image_is_made_in_two_stages_and_runs_as_nobody_special() -> None:
    compose: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    built = compose["x-retry"]["build"]
    dockerfile = (FOLDER / built["context"] / "Dockerfile").read_text()
    stages = re.findall(r"(?ms)^FROM (\S+) AS (\S+)$(.*?)(?=^FROM|\Z)", dockerfile)
    text = {name: (parent, lines) for parent, name, lines in stages}
    parent, lines = text[built["target"]]
    assert "COPY --from=build /venv /venv" in lines and text["build"][0] == "$BUILDER"
    assert "USER 10001:10001" in text[parent][1] and "pip" not in lines + text[parent][1]


def test_2_12_2_13_what_kubernetes_is_told_is_ours() -> None:
    told = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
    of_kind = lambda kind: {each["metadata"]["name"]: each for each in told if each["kind"] == kind}  # noqa: E731
    (settings_,) = of_kind("ConfigMap").values()
    environ = settings_["data"]
    assert settings.list_unknown_variables(environ) == []
    assert settings.read_settings(environ).data_dir == Path("/data")
    ports = {"worker": environ["RETRY_HTTP_ADDR"], "api": environ["RETRY_API_ADDR"]}
    # Each part scales by itself.
    assert {name: each["spec"]["replicas"] for name, each in of_kind("Deployment").items()} == {"worker": 2, "api": 2}
    for name, each in (of_kind("Deployment") | of_kind("Job")).items():
        pod = each["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert container["args"][0] == name in main.commands
        assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
        assert {mount["name"] for mount in container.get("volumeMounts", [])} <= {volume["name"] for volume in pod["volumes"]}
        if name in ports:
            probes = [container[probe]["httpGet"] for probe in ("livenessProbe", "readinessProbe")]
            assert [probe["path"] for probe in probes] == ["/health/live", "/health/ready"]
            assert {str(probe["port"]) for probe in probes} == {ports[name].rpartition(":")[2]}
    # What is secret is none of the settings, and calls go to public addresses only.
    assert {each["secret"]["secretName"] for each in _volumes(told) if "secret" in each} == {"retry-files"}
    assert of_kind("NetworkPolicy")["worker"]["spec"]["policyTypes"] == ["Egress"]


def _volumes(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    pods = [each["spec"]["template"]["spec"] for each in told if "template" in each.get("spec", {})]
    return [volume for pod in pods for volume in pod["volumes"]]


def test_2_8_2_9_each_has_one_command() -> None:
    makefile = (FOLDER.parents[1] / "Makefile").read_text()
    commands = {"load": "-m tests.bench.timers", "test": "-m pytest", "demo": "-m examples.demo", "lint": "ruff check"}
    for target, command in commands.items():
        recipe = makefile.partition(f"\n{target}:")[2].partition("\n\n")[0]
        assert command in recipe, target
