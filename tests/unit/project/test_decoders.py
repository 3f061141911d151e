"""Classes that msgspec reads have their fields worked out by an import, which is one thread.

msgspec (0.22) works them out when a class is read for the first time, and ends the process with a segmentation fault where
several threads do so at once. Shards are opened by several threads, requests of the console answered by several.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODULES = sorted([*ROOT.glob("retry/**/*.py"), *ROOT.glob("backoff/**/*.py")])
# Nothing is worked out for these: they have no fields.
WITHOUT_FIELDS = {"dict", "Raw", "list[msgspec.Raw]", "dict[str, Raw]", "msgspec.Raw", "tuple[str, int, int]"}
# Their shapes are worked out at import, as they say there.
CONVERTING = {"retry/policies/schema.py", "retry/operations/verify/records.py", "retry/telemetry/outcomes.py"}
# What makes a decoder for others; that they ask for it at import is looked at where they do.
MAKING = "retry/format_versions.py"
READ_BY_MANY = """
import sys, threading
from retry.delay_queue.table import table_state
sys.setswitchinterval(1e-6)
state = table_state.TableState(1, table_state.Identity("cluster", "topic", 3), 4, 5, 6)
go, read = threading.Barrier(8), []
def reads():
    go.wait()
    read.append(table_state.decode(state.encode(), "here"))
threads = [threading.Thread(target=reads) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert read == [state] * 8, read
"""


def late(tree: ast.Module) -> Iterator[str]:
    """Yield what is read by a class that may never have been read before."""
    functions = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    for node in [inner for outer in ast.walk(tree) if isinstance(outer, functions) for inner in ast.walk(outer)]:
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        types = [ast.unparse(each.value) for each in node.keywords if each.arg == "type"]
        if called in ("msgspec.json.decode", "msgspec.msgpack.decode") and not WITHOUT_FIELDS.issuperset(types):
            yield f"line {node.lineno}: {called} of {types}"
        if called.endswith("Decoder") or called == "make_json_decoder":
            yield f"line {node.lineno}: {called} is made in a function"
        if called == "msgspec.convert":
            yield f"line {node.lineno}: {called}"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(ROOT)))
def test_no_class_is_read_for_the_first_time_by_several_threads(module: Path) -> None:
    found = list(late(ast.parse(module.read_text())))
    if str(module.relative_to(ROOT)) in CONVERTING:
        found = [each for each in found if "msgspec.convert" not in each]
    if str(module.relative_to(ROOT)) == MAKING:
        found = [each for each in found if "msgspec.json.Decoder" not in each]
    assert not found, "make a decoder beside the class, at the top level of its module"


def test_what_is_looked_for_is_found() -> None:
    source = "def read(value):\n    return msgspec.json.decode(value, type=Letter)\n"
    assert list(late(ast.parse(source))) == ["line 2: msgspec.json.decode of ['Letter']"]
    assert list(late(ast.parse(f"async {source}"))) == ["line 2: msgspec.json.decode of ['Letter']"]
    assert len(list(late(ast.parse("def read(value):\n    return msgspec.json.Decoder(Letter).decode(value)\n")))) == 1
    assert len(list(late(ast.parse("def read(value):\n    return make_json_decoder(Letter)(value)\n")))) == 1
    assert list(late(ast.parse("read = msgspec.json.Decoder(Letter).decode\n"))) == []
    assert list(late(ast.parse("read = make_json_decoder(Letter)\n"))) == []


def test_a_table_is_opened_by_many_threads_at_once() -> None:
    subprocess.run([sys.executable, "-c", READ_BY_MANY], cwd=ROOT, check=True)
