"""Tells a webhook of a new kind of failures, of a resolved one that fails again, and of an action that is held, each with a link.

What there was when this began is known; so a restart tells nothing twice, and what happens while no console runs is told by none.
A call is signed as those of timers are, and goes only where theirs may.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import orjson

from retry import clock
from retry.console.acting import standing_actions
from retry.console.reading.groups import GroupsCursor
from retry.console.web.app import Console
from retry.errors import LookupsBusy, RebuildInProgress, RetryError
from retry.http_client.client import HttpRequest, WebhookClient, secrets_of
from retry.http_client.ssrf_guard import SsrfGuard, parse_allowlist
from retry.reloaded_file import ReloadedFile
from retry.settings import Settings

log = logging.getLogger(__name__)

_EVERY_S, _TIMEOUT_S = 5.0, 15.0
_TRIES_MAX = 5
# Kept to be told again while the receiver is away.
_WAITING_MAX = 100
_TEAM = "console"


class Event(NamedTuple):
    """Something that is told; `id` is the same at each attempt."""

    id: str
    kind: str
    body: bytes


class Happenings:
    """The events that are new since they were listed last, with links below `url`, under which others reach the console."""

    def __init__(self, console: Console, url: str) -> None:
        self._console, self._url = console, url
        self._seen, self._kinds = GroupsCursor(), set[str]()
        self._reopened: dict[str, int] = {}
        self._is_first = True
        self._held: set[tuple[str, int]] | None = None

    def list_new_events(self) -> list[Event]:
        """List kinds of failures that were not there, or resolved, and holds that did not stand, when this was asked last; raises
        RebuildInProgress."""
        return [*self._new_groups(), *self._new_holds()]

    def _new_groups(self) -> list[Event]:
        replica = self._console.replica
        (seen, kinds), reopened = replica.kinds_since(self._seen), dict(replica.find_reopened())
        # Parts of a split, and what is no longer merged, are kinds that were there before.
        new = dict.fromkeys(kind.group for kind in kinds if kind.fingerprint not in self._kinds)
        again = {group: at_ms for group, at_ms in reopened.items() if self._reopened.get(group) != at_ms and group not in new}
        events: list[Event] = []
        if not self._is_first:
            if (left_out := len(new) + len(again) - _WAITING_MAX) > 0:
                log.warning("%d kinds of failures are not told: so many are new at once", left_out)
            found = [("group.new", group, group) for group in new]
            found += [("group.reopened", group, f"{group}-{at_ms}") for group, at_ms in again.items()]
            events = [event for each in found[:_WAITING_MAX] if (event := self._of_group(*each)) is not None]
        self._seen, self._reopened, self._is_first = seen, reopened, False
        self._kinds.update(kind.fingerprint for kind in kinds)
        return events

    def _of_group(self, kind: str, group_id: str, of: str) -> Event | None:
        group = self._console.replica.find_group(None, group_id)
        if group is None:
            return None
        about = {
            "group": group.id, "cause": group.cause, "message": group.message, "letters": group.count,
            "teams": list(group.teams), "first_seen": clock.iso(group.first_ms),
        }  # fmt: skip
        return self._event(kind, of, f"/failures/{quote(group.id, safe='')}", about)

    def _new_holds(self) -> Iterator[Event]:
        actions = standing_actions.list_recent_actions(self._console.replica, None)
        found = {(about.id.hex(), about.held.at_ms): (about, about.held) for about in actions if about.held is not None}
        known, self._held = self._held, (self._held or set()) | found.keys()
        for action_id, at_ms in found.keys() - known if known is not None else ():
            about, held = found[action_id, at_ms]
            told = {
                "action": action_id, "kind": about.action.kind, "teams": about.action.teams, "by": held.by,
                "reason": held.reason, "held": clock.iso(at_ms), "letters": about.action.members, "done": about.tally.done,
            }  # fmt: skip
            yield self._event("action.held", f"{action_id}-{at_ms}", f"/actions/{action_id}", told)

    def _event(self, kind: str, of: str, path: str, about: Mapping[str, object]) -> Event:
        body = {"type": kind, "timestamp": clock.iso(clock.wall_ms()), "data": {**about, "link": f"{self._url}{path}"}}
        return Event(f"{kind}-{of}", kind, orjson.dumps(body))


class Notifier:
    """Looks every five seconds, and calls; one that fails is called again at the next looks, five times in all."""

    def __init__(self, console: Console) -> None:
        self._settings = console.settings
        url = self._settings.console_url or f"http://{self._settings.console_addr}"
        self._happenings = Happenings(console, url.rstrip("/"))
        # For the log; the rest of such an address is often a secret.
        self._receiver = urlsplit(self._settings.console_webhook).hostname
        self._waiting: list[tuple[Event, int]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._look_and_call()), name="console webhooks", daemon=True)

    def start(self) -> None:
        """Begin, in a thread; does nothing where no webhook is set."""
        if self._settings.console_webhook:
            self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    async def _look_and_call(self) -> None:
        client = WebhookClient(SsrfGuard(parse_allowlist(self._settings.webhook_allow)), _secrets(self._settings))
        try:
            while not await asyncio.to_thread(self._stop.wait, _EVERY_S):
                self._collect_events()
                await self._call_all(client)
        finally:
            await client.close()

    def _collect_events(self) -> None:
        try:
            self._waiting += [(event, 0) for event in self._happenings.list_new_events()]
        except RebuildInProgress:
            return
        except RetryError as error:
            log.warning("what is new cannot be told: %s", error)
        except Exception:
            # Whatever it is, the next look may go well: nobody else would call.
            log.exception("what is new cannot be told")
        if left_out := self._waiting[:-_WAITING_MAX]:
            log.warning("%d events are not told: %s does not answer", len(left_out), self._receiver)
            self._waiting = self._waiting[-_WAITING_MAX:]

    async def _call_all(self, client: WebhookClient) -> None:
        waiting, self._waiting = self._waiting, []
        for event, tries in waiting:
            fault = await self._call(client, event)
            if fault is None:
                continue
            if tries + 1 < _TRIES_MAX:
                self._waiting.append((event, tries + 1))
            else:
                log.warning("%s was not told to %s: %s", event.id, self._receiver, fault)

    async def _call(self, client: WebhookClient, event: Event) -> str | None:
        """Why it failed; None where it did not."""
        headers = {"Content-Type": "application/json"}
        request = HttpRequest(event.id, "POST", self._settings.console_webhook, headers, event.body, _TIMEOUT_S, _TEAM)
        try:
            return (await client.call(request)).error
        except LookupsBusy as error:
            return str(error)


def _secrets(settings: Settings) -> Callable[[], Sequence[bytes]]:
    if settings.webhook_secrets is None:
        return lambda: ()
    return ReloadedFile("RETRY_WEBHOOK_SECRETS", settings.webhook_secrets, secrets_of).current
