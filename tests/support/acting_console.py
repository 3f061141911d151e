"""A console without brokers, to act from: what its replica knows of actions and notes is given, and who asks is named."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from httpx2 import Response

from retry.console import server as acting
from retry.console.acting.previews import Previews
from retry.console.rows import SavedFilter, Scope
from retry.console.web.rights import Viewer
from retry.policies.policy_file import parse as policy_file
from tests.support.console import NOW_MS, ORIGIN, FakeReplica, serve_console

POLICIES = """
teams:
  shop:
    rate: 10/s
    topics:
      - {dead_letters: orders.DLT, retry_to: orders.retry, park_to: orders.parked,
         allowed_targets: [orders.retry, orders.parked, slow]}
  bank:
    topics:
      - {dead_letters: loans.DLT, retry_to: loans.retry, park_to: loans.parked,
         allowed_targets: [loans.retry, loans.parked, slow]}
"""


class WrittenNotes:
    """Remembers what was written."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.standing: dict[str, list[tuple[str, str, str, int]]] = defaultdict(list)

    def changes(self, group: str) -> list[tuple[str, str, str, int]]:
        return self.standing[group]

    def filters(self, _scope: Scope) -> list[SavedFilter]:
        return []

    def undo_regrouping(self, change: str, by: str) -> bool:
        self.calls.append(("undo", change, by))
        return True

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: self.calls.append((name, *given, *named.values()))


@dataclass
class ActingReplica(FakeReplica):
    """Knows of actions and pauses what it is given."""

    control_records: list[dict[bytes, bytes]] = field(default_factory=lambda: [{}, {}])
    failed: dict[int, int] = field(default_factory=dict)
    notes: Any = field(default_factory=WrittenNotes)

    def ramp_failed(self, _action: bytes) -> Mapping[int, int]:
        return self.failed


class ActingConsole:
    """The application, and what it stands on."""

    def __init__(self) -> None:
        self.replica, self.now_ms = ActingReplica(), NOW_MS
        self._served = serve_console(self.replica, tokens=f"nobody {'0' * 64} shop:viewer", more=[acting.build_acting_routes])
        self.console, self.audit = self._served.console, self._served.audit
        self.registry = policy_file(POLICIES, "policies.yaml")
        self.console.registry = lambda: self.registry
        self.console.clock_ms = lambda: self.now_ms
        self.previews = self.console.previews = Previews(lambda: self.now_ms)

    def ask(self, viewer: Viewer, method: str, address: str, form: Any = None, *, json: Any = None) -> Response:
        """Ask as a page of this console does: signed in, with the token of that, from the same origin."""
        return self.sign_in(viewer)(method, address, form, json=json)

    def sign_in(self, viewer: Viewer) -> Callable[..., Response]:
        """Sign in, and return what asks in that sign-in: with method, address, and a form or `json`."""
        secret, session = self.console.sign_in.sessions.begin_session(lambda: viewer)
        browser = self._served.browser()
        browser.cookies.set("retry-console", secret)
        headers = {"Origin": ORIGIN, "X-CSRF": session.mask_csrf()}

        def ask(method: str, address: str, form: Any = None, *, json: Any = None) -> Response:
            return browser.request(method, address, data=form, json=json, headers=headers)

        return ask

    def close(self) -> None:
        """End the threads that work previews out."""
        self.previews.close()
