"""What a docstring says of the whole tree is so: `time`, the environment and our headers have one place each."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from retry.dead_letters import retry_headers
from tests.support.chart import ROOT

Place = tuple[str, int]
TREES = {
    file.relative_to(ROOT).as_posix(): ast.parse(file.read_text())
    for package in ("retry", "backoff")
    for file in sorted((ROOT / package).rglob("*.py"))
}


def places(fits: type[ast.AST] | tuple[type[ast.AST], ...], *, outside: str, where: object) -> list[Place]:
    """Lines of the other modules with a node that fits."""
    assert outside in TREES
    return [
        (name, node.lineno)  # type: ignore[attr-defined]
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if name != outside and isinstance(node, fits) and where(node)  # type: ignore[operator]
    ]


def names(node: ast.AST) -> Iterator[str]:
    """Yield what an import names, with where it is from."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield str(node.module)
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def importers(module: str, *, outside: str) -> list[Place]:
    return places((ast.Import, ast.ImportFrom), outside=outside, where=lambda node: module in names(node))


def test_the_clock_is_the_only_importer_of_time() -> None:
    assert importers("time", outside="retry/clock.py") == []


def test_settings_are_the_only_reader_of_the_environment() -> None:
    def reads(node: ast.Attribute) -> bool:
        return ast.unparse(node) in ("os.environ", "os.getenv", "os.environb")

    here = "retry/settings.py"
    assert places(ast.Attribute, outside=here, where=reads) == []
    assert importers("os.environ", outside=here) + importers("os.getenv", outside=here) == []


def test_headers_of_ours_are_spelled_in_one_place() -> None:
    ours = retry_headers.OURS | {retry_headers.TASK_SOURCE}
    spelled = {*ours, *(name.encode() for name in ours)}
    assert places(ast.Constant, outside="retry/dead_letters/retry_headers.py", where=lambda node: node.value in spelled) == []


def test_commands_print_through_one_module() -> None:
    def prints(call: ast.Call) -> bool:
        return ast.unparse(call.func) in ("print", "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write")

    assert places(ast.Call, outside="retry/cli/output.py", where=prints) == []


def test_commands_write_json_in_one_way() -> None:
    def encodes(call: ast.Call) -> bool:
        return ast.unparse(call.func) in ("json.dumps", "orjson.dumps", "msgspec.json.encode")

    encoders = places(ast.Call, outside="retry/cli/output.py", where=encodes)
    assert [place for place in encoders if place[0].startswith("retry/cli/")] == []


def test_a_library_that_has_one_importer_is_imported_nowhere_else() -> None:
    assert importers("rocksdict", outside="retry/delay_queue/table/rocksdb.py") == []
    assert importers("faust", outside="retry/worker/faust_app.py") == []
