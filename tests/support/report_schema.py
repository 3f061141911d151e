"""The published schema of `retry analytics report --json`, held against what is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

_FILE = Path(__file__).parents[2] / "docs" / "reference" / "report.schema.json"


def faults_of(report: Any) -> list[str]:
    """List all that is not as the schema says, a line each with its place."""
    schema = json.loads(_FILE.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return [f"{fault.json_path}: {fault.message}"[:300] for fault in Draft202012Validator(schema).iter_errors(report)]
