"""An assistant asks what broke, sees what a retry would do, and has it done: `retry mcp` beside a real console and worker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.acceptance.test_acted_letters import numbers
from tests.acceptance.test_console_acts import GRANTED, live
from tests.acceptance.test_returned_letters import MADE, TWICE, back
from tests.conftest import Deploy
from tests.support.asked_console import AskedConsole
from tests.support.incident import GATEWAY, spring
from tests.support.letters import Sender
from tests.support.reading import Tail

pytestmark = pytest.mark.check


def ask(console: AskedConsole, who: str, folder: Path, steps: Any) -> Any:
    """Begin `retry mcp` with somebody's token, as an assistant does, and go through some steps with its client."""
    token = folder / f"{who}.token"
    token.write_text(who + "\n")
    address = f"http://127.0.0.1:{console.process.port()}"
    command = ["-m", "retry", "mcp", "--console", address, "--token-file", str(token)]

    async def run() -> Any:
        server = StdioServerParameters(command=sys.executable, args=command)
        async with Client(stdio_client(server)) as client:
            return await steps(client)

    return anyio.run(run)


def test_an_assistant_finds_what_failed_and_retries_it_with_the_rights_of_its_user(deploy: Deploy, tmp_path: Path) -> None:
    deployment = deploy({"orders": 2}, shards=2, defaults=TWICE)
    (topic,), sender = deployment.dead_letters, Sender(deployment.bootstrap_servers)
    for n in range(5):
        sender.send(topic, b"%d" % n, b'{"n": %d}' % n, [*spring(topic, GATEWAY, "no answer", n), *MADE])
    sender.finish()
    worker = deployment.worker().start().await_ready()
    Tail(deployment.bootstrap_servers, [deployment.parked]).await_seen(5)
    console = AskedConsole(deployment, GRANTED).start()

    async def retry(client: Client) -> dict[str, Any]:
        failures = (await client.call_tool("list_failures", {"filter": "state:parked"})).structured_content
        assert failures["groups"][0]["parked"] == 5
        listed = (await client.call_tool("list_letters", {"filter": f"group:{failures['groups'][0]['id']}"})).structured_content
        name = listed["letters"][0]["name"]
        explained = (await client.call_tool("explain_letter", {"name": name})).structured_content
        assert any(explained["explained"].values())
        asked = {"kind": "retry", "filter": "state:parked", "reason": "mended"}
        preview = (await client.call_tool("preview_action", asked)).structured_content
        while preview["state"] == "working":
            preview = (await client.call_tool("read_action", {"id": preview["id"]})).structured_content
        assert preview["letters"] == 5
        started = await client.call_tool("start_action", {"id": preview["id"], "expect": 5})
        assert not started.is_error, started.content
        return preview  # type: ignore[no-any-return]

    async def look(client: Client) -> set[str]:
        return {tool.name for tool in (await client.list_tools()).tools}

    assert "start_action" not in ask(console, "vic", tmp_path, look)
    done = live(console, "ann", ask(console, "ann", tmp_path, retry)["id"])
    assert (done["done"], done["by"]) == (5, "ann")
    assert numbers(back(deployment, 5)) == list(range(5))
    worker.terminate()
