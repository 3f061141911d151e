"""An assistant, by the SDK's client, asks the real routes of the console's API: it may what the role of its token allows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from click.testing import CliRunner

pytest.importorskip("mcp")

from mcp import Client
from mcp_types import CallToolResult, ListToolsResult

from retry.__main__ import main
from retry.console.mcp_server import ConsoleClient, build_server
from retry.console.web.rights import Role, Viewer
from retry.errors import ConsoleUnusable
from tests.support.acting_console import ActingConsole
from tests.support.console import group, letter, record
from tests.unit.console.test_actions_asked import Kafka

ADA = Viewer("ada", {"*": Role.ADMIN}, frozenset({"*"}))
VIC = Viewer("vic", {"payments": Role.VIEWER})
READING = {
    "read_overview", "list_failures", "read_failure", "list_letters", "explain_letter", "read_advice", "list_actions",
    "read_action", "list_pauses", "read_audit",
}  # fmt: skip
ACTING = {"preview_action", "preview_undo", "start_action", "order_action"}


@pytest.fixture
def console() -> Iterator[ActingConsole]:
    made = ActingConsole()
    made.replica.rows, made.replica.kinds = [letter(1), letter(2, "orders")], [group()]
    made.replica.payloads.records = {f"parked/0/{n}": record(f"parked/0/{n}", b'{"a": "secret"}') for n in (1, 2)}
    yield made
    made.close()


class Assistant:
    """Asks the tools of a server for one viewer."""

    def __init__(self, console: ActingConsole, viewer: Viewer, **options: bool) -> None:
        ask = console.sign_in(viewer)

        def answer(request: httpx2.Request) -> httpx2.Response:
            body = json.loads(request.content) if request.content else None
            found = ask(request.method, request.url.raw_path.decode(), json=body)
            return httpx2.Response(found.status_code, content=found.content, headers={"Content-Type": "application/json"})

        client = ConsoleClient("http://console", "", transport=httpx2.MockTransport(answer))
        self._server = build_server(client, "1", **options)

    def tools(self) -> dict[str, Any]:
        """The tools that are offered, by name."""
        listed: ListToolsResult = self._run(lambda client: client.list_tools())
        return {tool.name: tool for tool in listed.tools}

    def call(self, tool: str, **given: Any) -> dict[str, Any]:
        """Call a tool and return what it answers."""
        done = self.result(tool, **given)
        assert not done.is_error, done.content
        assert done.structured_content is not None
        return done.structured_content

    def result(self, tool: str, **given: Any) -> CallToolResult:
        """Call a tool and return its answer, or why it has none."""
        return self._run(lambda client: client.call_tool(tool, given))  # type: ignore[no-any-return]

    def _run(self, step: Callable[[Client], Any]) -> Any:
        async def ask() -> Any:
            async with Client(self._server) as client:
                return await step(client)

        return anyio.run(ask)


def test_who_only_sees_is_offered_what_reads_and_nothing_of_other_teams(console: ActingConsole) -> None:
    vic = Assistant(console, VIC, reveals=True)
    tools = vic.tools()
    assert set(tools) == READING
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools.values())
    assert [row["team"] for row in vic.call("list_letters")["letters"]] == ["payments"]
    assert vic.call("read_advice")["fault"] == "RETRY_CONSOLE_ADVICE names no file"
    refused = vic.result("explain_letter", name="parked/0/2")
    assert (refused.is_error, "there is no such letter" in refused.content[0].text) == (True, True)


def test_payloads_are_offered_where_command_and_right_say_so_and_each_look_is_in_the_audit(console: ActingConsole) -> None:
    assert "read_payload" not in Assistant(console, ADA).tools()
    ada = Assistant(console, ADA, reveals=True)
    assert ada.call("read_payload", name="parked/0/1")["value_base64"] == "eyJhIjogInNlY3JldCJ9"
    assert [told[0] for told in console.audit.told] == ["reveal"]
    explained = ada.call("explain_letter", name="parked/0/1")
    assert "value_base64" not in explained
    assert isinstance(explained["explained"], dict)
    assert [told[0] for told in console.audit.told] == ["reveal"]


def test_who_may_act_previews_and_starts_and_may_keep_the_assistant_from_it(
    console: ActingConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = Kafka(monkeypatch)
    assert set(Assistant(console, ADA, acts=False).tools()) == READING
    ada = Assistant(console, ADA)
    tools = ada.tools()
    assert set(tools) == READING | ACTING
    assert {name for name in tools if tools[name].annotations.destructive_hint} == {"start_action", "order_action"}
    found = ada.call("preview_action", kind="retry", filter="state:waiting", reason="the bank is back")
    assert (found["kind"], found["state"], found["letters"]) == ("retry", "ready", 3)
    assert ada.call("read_action", id=found["id"])["state"] == "ready"
    refused = ada.result("start_action", id=found["id"], expect=4_711)
    assert (refused.is_error, kafka.started) == (True, [])
    assert ada.call("start_action", id=found["id"], expect=3)["state"] == "started"
    assert kafka.started == [found["id"]]
    wrong = ada.result("preview_action", kind="retry", filter="stat:waiting", reason="")
    assert (wrong.is_error, "stat" in wrong.content[0].text) == (True, True)


def test_a_console_that_does_not_answer_or_is_none_is_told_in_a_line(tmp_path: Path) -> None:
    def fail(_request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    with pytest.raises(ConsoleUnusable, match="no console answered at http://console"):
        build_server(ConsoleClient("http://console", "t", transport=httpx2.MockTransport(fail)), "1")
    other = httpx2.MockTransport(lambda _: httpx2.Response(200, content=b"[]"))
    with pytest.raises(ConsoleUnusable, match="is no console"):
        ConsoleClient("http://console", "t", transport=other).get("/api/now")
    with pytest.raises(ConsoleUnusable, match="certificates cannot be read"):
        ConsoleClient("https://console", "t", tmp_path / "nowhere.pem")


def test_a_token_is_one_line_of_a_file_and_goes_to_the_console_alone(tmp_path: Path) -> None:
    seen: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers["Authorization"])
        return httpx2.Response(200, json={})

    ConsoleClient("http://console", "secret", transport=httpx2.MockTransport(answer)).get("/api/now")
    assert seen == ["Bearer secret"]
    (tmp_path / "two").write_text("one\ntwo\n")
    for file in ("two", "none"):
        told = CliRunner().invoke(main, ["mcp", "--token-file", str(tmp_path / file)])
        assert (told.exit_code, "--token-file" in told.output) == (2, True)
