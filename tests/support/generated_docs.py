"""What pages of docs/ show of the code: `make docs` writes it between the comments that name it, a unit test compares.

    <!-- make docs: metrics_worker -->
    | name | type | …
    <!-- end -->
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from retry import errors, format_versions, settings
from retry.cli.output import format_json
from retry.dead_letters.failure import FIELDS
from retry.dead_letters.frameworks.detection import DIALECTS
from retry.policies.schema import build_schema
from retry.process import acls, logs
from retry.settings import Settings
from retry.telemetry import call_records, offset_records, outcomes, prometheus, worker_records
from retry.telemetry.prometheus import Metric
from tests.support import command_docs
from tests.support.chart import CHART
from tests.support.chart_values import values_table
from tests.support.markdown import table

DOCS = Path(__file__).parents[2] / "docs"
_PART = re.compile(r"(<!-- make docs: (\w+) -->\n\n).*?(\n<!-- end -->\n)", re.DOTALL)


def _metrics(metrics: Iterable[Metric]) -> str:
    rows = ((f"`{m.name}`", m.type, ", ".join(m.labels), m.meaning) for m in metrics)
    return table(("name", "type", "labels", "meaning"), rows)


_BRANCH = re.compile(r"^[│ ]*[├└]── (\w+) +(\S.*)$", re.MULTILINE)


def _errors() -> str:
    rows = (
        (f"`{name}`", describe(getattr(errors, name)), _capital(then)) for name, then in _BRANCH.findall(errors.__doc__ or "")
    )
    return table(("error", "what happened, and the message", "what you do"), rows)


def describe(error: type[Exception]) -> str:
    """Describe what happened, and how the message of it reads where all of them read alike."""
    happened = inspect.getdoc(error) or ""
    if "__init__" not in vars(error):
        return happened
    example: dict[str, Any] = {"findings": ["<findings>"], "seconds": 60, "progress": 0.5, "reason": "<reason>"}
    names = inspect.signature(error).parameters
    message = str(error(**{name: example.get(name, f"<{name}>") for name in names}))
    return happened if message.startswith("<fault>") else f"{happened} `{message}`"


def _settings() -> str:
    bounds = {name: "0, 1" if high == 1 else f"{low:,} to {high:,}" for name, low, high in settings.BOUNDS}
    bounds |= {name: ", ".join(f"`{word}`" for word in words) for name, words in settings.WORDS}
    meanings = {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(inspect.getdoc(Settings) or "")}
    rows = (
        (f"`RETRY_{field.name.upper()}`", _default(field.default), bounds.get(field.name, ""), _capital(meanings[field.name]))
        for field in msgspec.structs.fields(Settings)
        if field.name not in settings.NOT_FROM_ENVIRONMENT
    )
    return table(("variable", "default", "allowed", "meaning"), rows)


_ATTRIBUTE = re.compile(r"^  (\w+): (.*(?:\n {4}.*)*)", re.MULTILINE)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _default(value: object) -> str:
    return "" if value in (None, "") else f"`{value}`"


def _frameworks() -> str:
    rows: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for dialect in DIALECTS:
        marks, read = rows.setdefault(dialect.family, ({}, {}))
        marks.update(dict.fromkeys("+".join(f"`{name}`" for name in sorted(mark)) for mark in dialect.marks))
        fields = *FIELDS, "cause_message"
        read.update(dict.fromkeys(f"`{place.header}`" for field in fields for place in getattr(dialect, field)))
    columns = ("family", "recognised by", "also read")
    return table(columns, ((f"`{family}`", *_marks_and_rest(*of)) for family, of in rows.items()))


def _marks_and_rest(marks: Iterable[str], read: Iterable[str]) -> tuple[str, str]:
    shown = ", ".join(marks)
    return shown, ", ".join(name for name in read if name not in shown)


def _table_of(module: ModuleType) -> str:
    """The table in a module's docstring."""
    return "".join(f"{line}\n" for line in (module.__doc__ or "").splitlines() if line.startswith("|"))


def _rights() -> str:
    rows = ((need.who, need.resource, need.of, f"`{need.operation}`", need.without) for need in acls.NEEDS)
    return table(("who", "resource", "name", "operation", "what stops without it"), rows)


def _traces() -> str:
    # Not imported here: it takes a library that not everybody has.
    text = (Path(prometheus.__file__).parent / "tracing.py").read_text(encoding="utf-8").split('"""')[1]
    return "".join(f"{line}\n" for line in text.splitlines() if line.startswith("|"))


PARTS: dict[str, Callable[[], str]] = {
    "chart_values": values_table,
    "rights": _rights,
    "settings": _settings,
    "commands_run": lambda: command_docs.section(
        "worker", "api", "scheduler", "console", "mcp", "notifications", "broker"
    ),
    "commands_keep": lambda: command_docs.section("topics", "acls", "policies", "doctor", "context", "completion"),
    "commands_act": lambda: command_docs.section("pause", "resume", "pauses", "reschedule"),
    "commands_letters": lambda: command_docs.section("act", "actions", "tasks", "audit", "erase", "keys"),
    "commands_attach": lambda: command_docs.section("discover", "try", "size", "migrate"),
    "commands_look": lambda: command_docs.section("inspect", "letters", "failures", "explain", "verify"),
    "commands_analytics": lambda: command_docs.section("analytics"),
    "logs": lambda: _table_of(logs),
    "traces": _traces,
    "errors": _errors,
    "formats": lambda: _table_of(format_versions),
    "frameworks": _frameworks,
    "outcomes": lambda: _table_of(outcomes),
    "positions": lambda: _table_of(offset_records),
    "workers": lambda: _table_of(worker_records),
    "calls": lambda: _table_of(call_records),
    "metrics_worker": lambda: _metrics(prometheus.WORKER),
    "metrics_scheduler": lambda: _metrics(prometheus.SCHEDULER),
    "metrics_api": lambda: _metrics(prometheus.API),
    "metrics_console": lambda: _metrics(prometheus.CONSOLE),
    "metrics_every": lambda: _metrics(prometheus.EVERY),
}


def parts_of(page: str) -> list[str]:
    """Names of the generated parts of a page, in their order."""
    return [name for _, name, _ in _PART.findall(page)]


def renew_page(page: str) -> str:
    """The page with its generated parts as the code has them now."""
    return _PART.sub(lambda part: part[1] + PARTS[part[2]]() + part[3], page)


def pages() -> dict[Path, str]:
    """Every page of docs/ that has generated parts, and the chart's README; and their texts."""
    texts = {path: path.read_text(encoding="utf-8") for path in (*sorted(DOCS.rglob("*.md")), CHART / "README.md")}
    return {path: text for path, text in texts.items() if parts_of(text)}


SCHEMA = DOCS / "reference" / "policy-file.schema.json"


def policy_file_schema() -> str:
    """The JSON Schema of policy files, as `retry policies schema` prints it."""
    return format_json(build_schema(), indented=True) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(policy_file_schema(), encoding="utf-8")
    for path, text in pages().items():
        path.write_text(renew_page(text), encoding="utf-8")
