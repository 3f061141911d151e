"""What stands in `examples/deploy-timers` is of this version (2-7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from retry import settings
from retry.__main__ import main
from retry.errors import SettingsInvalid
from retry.policies.file import load

FOLDER = Path(__file__).parents[2] / "examples" / "deploy-timers"


def sample() -> dict[str, str]:
    lines = [line for line in (FOLDER / "env.sample").read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)  # type: ignore[misc]


def test_2_7_the_sample_has_every_variable_and_can_be_used() -> None:
    # A worker says itself which it knows.
    with pytest.raises(SettingsInvalid) as refused:
        settings.from_environment({"RETRY_UNKNOWN": "x"})
    told = str(refused.value).partition("known are ")[2].partition(" and ")[0]
    named = {name for name in told.split(", ") if not name.endswith("*")}
    assert named == set(sample())
    assert settings.from_environment(sample()).app_id == "retry"


def test_2_7_every_service_is_a_command_of_ours_and_its_files_are_there() -> None:
    compose: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    ours = {name: each for name, each in compose["services"].items() if name != "kafka"}
    assert {each["command"][0] for each in ours.values()} == {"topics", "worker", "api"} <= main.commands.keys()
    mounted = {volume.split(":")[0] for each in ours.values() for volume in each["volumes"]}
    # Tokens are made, and never in a repository.
    assert {path for path in mounted if not (FOLDER / path).exists()} == {"./tokens"}
    assert load(FOLDER / "policies.yaml").reads("orders.DLT")


def test_2_7_the_image_is_made_in_two_stages_and_runs_as_nobody_special() -> None:
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    assert len([line for line in lines if line.startswith("FROM")]) == 2
    assert "USER retry" in lines
