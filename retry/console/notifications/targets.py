"""Sends one message to one target: through Apprise, or as JSON that is signed as calls of timers are."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import NamedTuple

from retry.console.notifications.events import SINGLE_MAX, Event, Message, write_summary
from retry.console.notifications.rule_file import SETTING, Target, read_url
from retry.distribution import describe_extra
from retry.errors import LookupsBusy, NotificationFailed, SettingsInvalid
from retry.http_client.client import ClientCertificates, HttpRequest, WebhookClient
from retry.http_client.signatures import SETTING as OF_KEYS
from retry.http_client.signatures import SigningKeys
from retry.http_client.ssrf_guard import SsrfGuard, parse_allowlist
from retry.reloaded_file import ReloadedFile
from retry.settings import Settings

_TIMEOUT_S = 15.0


def find_public_url(settings: Settings) -> str:
    """Return the address under which people reach the console, without a slash at its end."""
    return (settings.console_url or f"http://{settings.console_addr}").rstrip("/")


def build_test_event() -> Event:
    sentence = "This is a test of notifications: whoever reads it is told of what fails."
    return Event("test", f"test/{secrets.token_hex(8)}", "Test of notifications", sentence, "/", {})


class Delivery(NamedTuple):
    events: Sequence[Event]
    message: Message


class Senders:
    """Knows how targets are reached; for several threads. `console_url` begins the links."""

    def __init__(self, settings: Settings, console_url: str) -> None:
        self._settings, self._console_url = settings, console_url
        self._keys: Callable[[], SigningKeys] = SigningKeys
        if settings.webhook_secrets is not None:
            self._keys = ReloadedFile(OF_KEYS, settings.webhook_secrets, SigningKeys).current
        ClientCertificates(settings.webhook_certificates)

    def check_target(self, target: Target) -> None:
        """Check that the file of a target can be used; raises SettingsInvalid, whose text has no URL in it."""
        try:
            if target.is_webhook:
                read_url(target.file)
            else:
                _open_door().open_service(target.file, self._console_url)
        except NotificationFailed as failed:
            raise SettingsInvalid(SETTING, f"target {target.name}: {failed}") from None

    def group_deliveries(self, target: Target, events: Sequence[Event]) -> list[Delivery]:
        """Group events into messages: programs are called for each, people get one for many."""
        if target.is_webhook or len(events) <= SINGLE_MAX:
            bodies = [f"{event.sentence}\n{self._console_url}{event.path}" for event in events]
            return [Delivery([event], Message(event.title, body)) for event, body in zip(events, bodies, strict=True)]
        sentences = [(event.sentence, self._console_url + event.path) for event in events]
        return [Delivery(events, write_summary([event.kind for event in events], sentences, self._console_url))]

    def send(self, target: Target, delivery: Delivery, *, is_test: bool = False) -> None:
        """Send a message; raises NotificationFailed where it is not known to have arrived."""
        if target.is_webhook:
            for event in delivery.events:
                asyncio.run(self._call(target, event))
        else:
            message = delivery.message
            _open_door().send_message(target.file, message.title, message.body, self._console_url, is_test=is_test)

    async def _call(self, target: Target, event: Event) -> None:
        url = read_url(target.file)
        folder = self._settings.webhook_certificates
        headers, body = {"Content-Type": "application/json"}, event.encode(self._console_url)
        guard, certificates = SsrfGuard(parse_allowlist(self._settings.webhook_allow)), ClientCertificates(folder)
        client = WebhookClient(guard, self._keys, certificates)
        try:
            answer = await client.call(HttpRequest(event.call_id, "POST", url, headers, body, _TIMEOUT_S, f"@{target.name}"))
        except LookupsBusy as error:
            raise NotificationFailed(str(error)) from None
        finally:
            await client.close()
        if answer.error is not None:
            raise NotificationFailed(f"the call failed: {answer.error}")


def _open_door() -> ModuleType:
    """Load Apprise, which takes a second and is there with an extra alone; raises SettingsInvalid where it is not."""
    try:
        from retry.console.notifications import apprise_door
    except ModuleNotFoundError as missing:
        extra = f"names a target of Apprise, which is not installed ({missing}); {describe_extra('notifications')}"
        raise SettingsInvalid(SETTING, extra) from None
    return apprise_door
