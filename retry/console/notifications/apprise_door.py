"""Sends through Apprise, which speaks to Slack, Teams, PagerDuty, mail servers and more: the only door to that library.

Its URL holds the secrets of a target. Errors say what Apprise warns of, in which no part of that URL stands.
"""

from __future__ import annotations

from pathlib import Path

import apprise

from retry.console.notifications.rule_file import hide_parts, read_url
from retry.errors import NotificationFailed

# A plugin that tries several addresses, or a mail server that does not answer, ends within this.
TIMEOUT_S = 20.0


def open_service(file: Path, console_url: str) -> apprise.NotifyBase:
    """Open the service that a file's URL names; raises NotificationFailed where Apprise knows none."""
    # Pictures would be fetched from a stranger's server by whoever reads a message.
    asset = apprise.AppriseAsset(
        app_id="Retry", app_desc="Dead-letter retry", app_url=console_url, async_mode=False, image_url_mask="", image_url_logo="",
        image_path_mask=False, service_timeout=TIMEOUT_S, secure_logging=True, http_redirects=False,
    )  # fmt: skip
    service = apprise.Apprise.instantiate(read_url(file), asset=asset)
    if service is None:
        raise NotificationFailed(f"Apprise knows no service of the URL in {file}; https://appriseit.com/services has the forms")
    return service


def send_message(file: Path, title: str, body: str, console_url: str, *, is_test: bool = False) -> None:
    """Send one message; raises NotificationFailed where the target is not known to have it."""
    service = open_service(file, console_url)
    # For who speaks Markdown alone Apprise would escape the dots of a link. What is sent holds no markup, so it may go as it is.
    form = None if service.notify_format == apprise.NotifyFormat.MARKDOWN else apprise.NotifyFormat.TEXT
    result = apprise.Apprise(service).notify(body, title, "info" if is_test else "warning", form, timeout=TIMEOUT_S)
    if not result:
        warnings = [entry.message for entry in result.logs() if entry.level in ("WARNING", "ERROR", "CRITICAL")]
        reason = warnings[-1] if warnings else f"Apprise says {result.status.name.lower()}"
        raise NotificationFailed(hide_parts(reason, read_url(file)))
