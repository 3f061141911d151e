"""Messages reach chats, pagers, mail servers and programs in the form of each, through Apprise's plugins; no secret is told."""

from __future__ import annotations

import base64
import email
import email.policy
import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from apprise.plugins import pagerduty, slack
from click.testing import CliRunner

from retry.__main__ import main
from retry.console.notifications.events import Event
from retry.console.notifications.rule_file import Target
from retry.console.notifications.targets import Senders
from retry.errors import NotificationFailed, SettingsInvalid
from retry.http_client.signatures import SharedKey, sign_body
from retry.settings import Settings
from tests.support.ports import free_port

URL = "https://retry.example.com"
SLACK = "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
SENTENCE = "java.net.ConnectException “order # of a_b failed” is new in team shop: 12 letters wait."
EVENT = Event("new_failure", "new_failure/f00d", "New failure: shop", SENTENCE, "/failures/f00d", {"group": "f00d"})
LINK = f"{URL}/failures/f00d"


class Receiver:
    """Keeps what is posted; answers with `status`, and what Slack says."""

    def __init__(self) -> None:
        calls = self.calls = list[tuple[str, dict[str, str], bytes]]()
        self.status = 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                calls.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(receiver.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def take_json(self) -> Any:
        """Return what the one call said, as JSON."""
        ((_, _, body),) = self.calls
        self.calls.clear()
        return json.loads(body)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    made = Receiver()
    monkeypatch.setattr(slack.NotifySlack, "webhook_url", f"http://127.0.0.1:{made.port}/services")
    monkeypatch.setitem(pagerduty.PAGERDUTY_API_LOOKUP, pagerduty.PagerDutyRegion.US, f"http://127.0.0.1:{made.port}/enqueue")
    yield made
    made.close()


def tell(folder: Path, url: str, *, is_webhook: bool = False, **settings: Any) -> None:
    file = folder / "url"
    file.write_text(url + "\n")
    target, senders = Target("chat", is_webhook, file), Senders(Settings(**settings), URL)
    senders.check_target(target)
    for delivery in senders.group_deliveries(target, [EVENT]):
        senders.send(target, delivery)


def test_slack_gets_the_sentence_and_the_link(receiver: Receiver, tmp_path: Path) -> None:
    tell(tmp_path, SLACK)
    assert receiver.calls[0][0] == "/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
    told = receiver.take_json()
    (shown,) = told["attachments"]
    assert (shown["title"], shown["text"]) == ("New failure: shop", f"{SENTENCE}\n{LINK}")
    assert "github" not in json.dumps(told), "no picture is fetched from elsewhere"


def test_pagerduty_gets_a_warning(receiver: Receiver, tmp_path: Path) -> None:
    tell(tmp_path, "pagerduty://abcdefghij0123456789@0123456789abcdefghij")
    told = receiver.take_json()
    assert (told["event_action"], told["payload"]["severity"]) == ("trigger", "warning")
    assert SENTENCE in told["payload"]["summary"]
    assert LINK in told["payload"]["summary"]


def test_teams_gets_a_card_whose_link_is_whole(receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Apprise calls workflows of Teams by HTTPS alone: only the scheme is changed on the way.
    from apprise.plugins import workflows

    post = workflows.requests.post
    monkeypatch.setattr(workflows.requests, "post", lambda url, **of: post(url.replace("https://", "http://"), **of))
    tell(tmp_path, f"workflow://127.0.0.1:{receiver.port}/643a003adaaf40879d2f3cbd5c5d0f6d/vnRCnLM5yVlGqUYRMWoKiHPPg35Nxd2a")
    (card,) = receiver.take_json()["attachments"]
    assert [each["text"] for each in card["content"]["body"]] == ["New failure: shop", f"{SENTENCE}\n{LINK}"]


def test_a_generic_address_gets_json(receiver: Receiver, tmp_path: Path) -> None:
    tell(tmp_path, f"json://127.0.0.1:{receiver.port}/in")
    told = receiver.take_json()
    assert (told["title"], told["message"]) == ("New failure: shop", f"{SENTENCE}\n{LINK}")


def test_mail_arrives_with_its_subject_and_the_link(tmp_path: Path) -> None:
    mails: list[bytes] = []

    class Kept:
        async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802
            mails.append(envelope.content)
            return "250 taken"

    port = free_port()
    server = Controller(Kept(), hostname="127.0.0.1", port=port)
    server.start()
    try:
        tell(tmp_path, f"mailto://127.0.0.1:{port}?from=retry@example.com&to=oncall@example.com&mode=insecure")
    finally:
        server.stop()
    (raw,) = mails
    mail = email.message_from_bytes(raw, policy=email.policy.default)
    assert (mail["subject"], mail["to"]) == ("New failure: shop", "oncall@example.com")
    text = mail.get_body(("html", "plain")).get_content()  # type: ignore[union-attr]
    assert LINK in text
    assert "“order # of a_b failed”" in text


def test_a_webhook_is_signed_and_goes_only_where_it_may(receiver: Receiver, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text("whsec_" + base64.b64encode(b"k" * 32).decode() + "\n")
    address = f"http://127.0.0.1:{receiver.port}/in"
    with pytest.raises(NotificationFailed, match="the call failed: not_allowed"):
        tell(tmp_path, address, is_webhook=True, webhook_secrets=secrets)
    tell(tmp_path, address, is_webhook=True, webhook_secrets=secrets, webhook_allow="127.0.0.0/8")
    ((_, headers, body),) = receiver.calls
    assert headers["webhook-id"] == "new_failure/f00d"
    made = sign_body([SharedKey(b"k" * 32)], headers["webhook-id"], int(headers["webhook-timestamp"]), body)
    assert headers["webhook-signature"] == made["webhook-signature"]
    assert json.loads(body)["data"]["link"] == LINK


def test_what_is_refused_says_why_and_no_secret(receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    receiver.status = 500
    with pytest.raises(NotificationFailed) as failed:
        tell(tmp_path, SLACK)
    assert "500" in str(failed.value)
    receiver.status = 200
    port = free_port()
    with pytest.raises(NotificationFailed) as unreachable:
        tell(tmp_path, f"json://user:passw0rd@127.0.0.1:{port}/s3cretpath")
    said = f"{failed.value} {unreachable.value} {caplog.text}"
    assert not any(secret in said for secret in ("TIiajkdnlazkcOXrIdevi7FQ", "A1BRTD4JD", "passw0rd", "s3cretpath"))


@pytest.mark.parametrize(("content", "reason"), [
    ("", "does not hold one line with one URL"), ("a://b\nc://d", "does not hold one line"),
    ("nothing://s3cret-token/x", "knows no service"),
    ("s3cret-token", "does not hold one line"),
])  # fmt: skip
def test_a_file_that_holds_no_url_is_refused_without_its_content(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "url"
    file.write_text(content)
    with pytest.raises(SettingsInvalid, match=reason) as refused:
        Senders(Settings(), URL).check_target(Target("chat", False, file))
    assert "s3cret" not in str(refused.value)
    file.unlink()
    with pytest.raises(SettingsInvalid, match=r"target chat: .* cannot be read"):
        Senders(Settings(), URL).check_target(Target("chat", True, file))


def test_a_command_sends_a_test_message(receiver: Receiver, tmp_path: Path) -> None:
    secret, rules = tmp_path / "chat-url", tmp_path / "notifications.yaml"
    secret.write_text(f"json://127.0.0.1:{receiver.port}/in")
    rules.write_text(f"targets: {{chat: {{apprise: {secret}}}}}\n")
    environment = {"RETRY_CONSOLE_NOTIFICATIONS": str(rules), "RETRY_CONSOLE_URL": URL}
    done = CliRunner().invoke(main, ["notifications", "try", "chat"], env=environment)
    assert (done.exit_code, done.output) == (0, "chat: the message was taken\n")
    told = receiver.take_json()
    assert (told["title"], told["type"], told["message"].endswith(f"\n{URL}/")) == ("Test of notifications", "info", True)
    receiver.status = 404
    refused = CliRunner().invoke(main, ["notifications", "try", "chat"], env=environment)
    assert (refused.exit_code, "404" in refused.output) == (1, True)
    unknown = CliRunner().invoke(main, ["notifications", "try", "pager"], env=environment)
    assert (unknown.exit_code, "there is no target pager; the file has chat" in unknown.output) == (2, True)
