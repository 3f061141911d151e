"""A console without brokers, for tests: its real application over a replica that a test fills, asked without a network."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

from retry.console.acting import routes as acting
from retry.console.acting.previews import Previews
from retry.console.replica.rows import AuditRow, Freshness, Group, LetterRow, Names, Now, Page, Scope
from retry.console.web.app import Console
from retry.console.web.application import application, environment
from retry.console.web.live import Live
from retry.console.web.origin import Origin
from retry.console.web.rights import Viewer
from retry.console.web.sessions import Sessions
from retry.console.web.sign_in import SignIn
from retry.console.web.static_files import Assets
from retry.policies.policy_file import parse as policy_file
from retry.settings import Settings

NOW_MS = 1_795_300_000_000
HOST = "127.0.0.1:8082"
POLICIES = """
teams:
  shop: {topics: [{dead_letters: orders.DLT, retry_to: orders.retry, park_to: orders.parked}]}
  bank: {topics: [{dead_letters: loans.DLT, retry_to: loans.retry, park_to: orders.parked}]}
"""


class FilledReplica:
    """What pages ask of a replica; a test fills it."""

    def __init__(self) -> None:
        self.state: list[dict[bytes, bytes]] = [{}, {}]
        self.failed: dict[int, int] = {}
        self.found_groups: dict[str, Group] = {}
        self.rows: list[LetterRow] = []
        self.audit_rows: list[AuditRow] = []
        self.notes = NotedNotes()
        self.payloads = SimpleNamespace(found=lambda _scope, _name: None)

    def freshness(self) -> Freshness:
        return Freshness("live", 1.0, NOW_MS, 0)

    def generation(self) -> int:
        return 1

    def controls(self) -> list[dict[bytes, bytes]]:
        return self.state

    def ramp_failed(self, _action: bytes) -> Mapping[int, int]:
        return self.failed

    def names(self, _scope: Scope) -> Names:
        return Names(teams=("shop",), topics=("orders.DLT",), targets=("orders.retry",))

    def group(self, scope: Scope, group_id: str) -> Group | None:
        found = self.found_groups.get(group_id)
        return found if found and (scope is None or scope.intersection(found.teams)) else None

    def groups(self, scope: Scope, *_: Any, **__: Any) -> Page[Group]:
        seen = [each for each in self.found_groups.values() if scope is None or scope.intersection(each.teams)]
        return Page(seen, None, len(seen))

    def letters(self, scope: Scope, *_: Any) -> Page[LetterRow]:
        seen = self._seen(scope)
        return Page(seen, None, len(seen))

    def letter(self, scope: Scope, name: str) -> LetterRow | None:
        return next((row for row in self._seen(scope) if row.name == name), None)

    def named_entries(self, scope: Scope, kind: str, *_: Any) -> Page[LetterRow]:
        return Page([row for row in self._seen(scope) if row.kind == kind])

    def audit(self, _scope: Scope, *_: Any, action: str = "") -> Page[AuditRow]:
        return Page([row for row in self.audit_rows if not action or row.action == action])

    def now(self, _scope: Scope) -> Now:
        return Now(NOW_MS, 3, 2, 1, 0, 1, (), 0, None, (), (), 0, (), (), ())

    def _seen(self, scope: Scope) -> list[LetterRow]:
        return [row for row in self.rows if scope is None or row.team in scope]


class NotedNotes:
    """Remembers what was written."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.standing: dict[str, list[tuple[str, str, str, int]]] = defaultdict(list)

    def changes(self, group: str) -> list[tuple[str, str, str, int]]:
        return self.standing[group]

    def undo(self, change: str, by: str) -> bool:
        self.calls.append(("undo", change, by))
        return True

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: self.calls.append((name, *given, *named.values()))


@dataclass
class WrittenAudit:
    """Remembers what was audited; says that it cannot where it is told to."""

    records: list[tuple[Any, ...]] = field(default_factory=list)
    fault: Exception | None = None

    def write(self, kind: str, by: str, reason: str, letters: Sequence[str] = (), teams: Any = ()) -> None:
        if self.fault:
            raise self.fault
        self.records.append((kind, by, reason, list(letters), sorted(teams)))

    def reveal(self, by: str, letters: Sequence[str], teams: Any = ()) -> None:
        self.write("reveal", by, "", letters, teams)


@dataclass
class Answer:
    """What the console answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ActingConsole:
    """The application, and who may ask it."""

    def __init__(self, **settings: Any) -> None:
        self.now_ms = NOW_MS
        self.replica, self.audit, self.registry = FilledReplica(), WrittenAudit(), policy_file(POLICIES, "policies.yaml")
        self.previews = Previews(lambda: self.now_ms)
        clock_ms = lambda: self.now_ms  # noqa: E731
        sessions = Sessions(3_600_000, clock_ms)
        assets = Assets()
        self.console = Console(
            Settings(**settings), self.replica, lambda: self.registry, self.audit, self.previews,  # type: ignore[arg-type]
            SignIn(sessions, _NobodysTokens(), None, Origin(False), clock_ms),  # type: ignore[arg-type]
            Live(self.replica.generation, clock_ms), environment(assets), clock_ms,
        )  # fmt: skip
        self.app = application(self.console, assets, [acting.routes])

    def ask(
        self, viewer: Viewer, method: str, address: str, form: Any = None, *, body: Any = None, headers: Any = None
    ) -> Answer:
        """Ask as a page of this console would: with a sign-in, its token, and the same origin.

        Args:
          form: fields, or pairs of them.
          body: sent as JSON in its place.
        """
        secret, session = self.console.sign_in.sessions.begin(lambda: viewer)
        sent = urlencode(form or {}, doseq=True).encode() if body is None else json.dumps(body).encode()
        kind = "application/x-www-form-urlencoded" if body is None else "application/json"
        given = {
            "host": HOST, "origin": f"http://{HOST}", "cookie": f"retry-console={secret}", "content-type": kind,
            "x-csrf": session.csrf, **(headers or {}),
        }  # fmt: skip
        path, _, query = address.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
            "raw_path": path.encode(), "query_string": query.encode(), "root_path": "", "scheme": "http",
            "server": ("127.0.0.1", 8082), "client": ("127.0.0.1", 5),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }  # fmt: skip
        return asyncio.run(_asked(self.app, scope, sent))

    def close(self) -> None:
        """End the threads that work out previews."""
        self.previews.close()


class _NobodysTokens:
    """That there are tokens makes the console ask for a sign-in; tests sign in without one."""

    def find(self, _token: str) -> None:
        return None


async def _asked(app: Any, scope: dict[str, Any], body: bytes) -> Answer:
    begun, parts, sent = {}, [], [False]

    async def receive() -> dict[str, Any]:
        if sent[0]:
            await asyncio.Event().wait()
        sent[0] = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            begun.update(message)
        else:
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in begun["headers"]}
    return Answer(begun["status"], headers, b"".join(parts))


