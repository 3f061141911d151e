"""A letter is edited on its own page and retried, in one action: for who may, of what was seen, once."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from retry.console.web.rights import Role, Viewer
from retry.errors import ActionRefused
from retry.scheduling.tasks import formats
from retry.scheduling.tasks.framed_values import FramedValues
from tests.support.acting_console import ActingConsole
from tests.support.console import letter, record
from tests.support.registry import RegistryServer, confluent
from tests.unit.console.test_actions_asked import Kafka

NAME = "parked/0/1"
ANN = Viewer("ann", {"shop": Role.OPERATOR}, frozenset({"shop"}))
BOB = Viewer("bob", {"shop": Role.OPERATOR})
VIC = Viewer("vic", {"shop": Role.VIEWER}, frozenset({"shop"}))
EVE = Viewer("eve", {"bank": Role.ADMIN}, frozenset({"bank"}))


class Page:
    """The form of a letter as a browser has it, in one sign-in."""

    def __init__(self, console: ActingConsole, viewer: Viewer = ANN) -> None:
        self._console, self._session = console, console.sign_in(viewer)
        shown = self._session("POST", f"/letters/{NAME}/reveal")
        self.status, self.text = shown.status_code, shown.text

    def field(self, name: str) -> str:
        return (re.search(f'name="{name}" value="([^"]*)"', self.text) or pytest.fail(name))[1]

    def send(self, value: str, do: str = "save", path: str = "edit", **more: str):  # type: ignore[no-untyped-def]
        form = {"value": value, "do": do, "seen": self.field("seen"), "attempt": self.field("attempt"), **more}
        return self._session("POST", f"/letters/{NAME}/{path}", form)


@pytest.fixture
def console() -> Iterator[ActingConsole]:
    made = ActingConsole()
    made.replica.rows = [letter(1, "shop")]
    made.replica.payloads.records = {NAME: record(NAME, b'{"amount":1.10,"to":"x"}')}
    yield made
    made.close()


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    made = Kafka(monkeypatch)
    made.letters, made.diff = 1, ["-1", "+2"]
    return made


def test_what_was_revealed_is_edited_and_retried_in_one_action(console: ActingConsole, kafka: Kafka) -> None:
    page = Page(console)
    assert ('href="#value"' in page.text, page.text.count('id="value"')) == (True, 1)
    assert '{\n  &#34;amount&#34;: 1.10,\n  &#34;to&#34;: &#34;x&#34;\n}</textarea>' in page.text
    saved = page.send('{\r\n  "amount": 2.50,\r\n  "to": "x"\r\n}', reason="too little")
    assert (saved.status_code, saved.headers["location"]) == (303, f"/actions/{kafka.started[0]}")
    (asked,) = kafka.requests
    assert (asked.action.kind, asked.action.by, asked.action.reason, asked.action.filter) == (
        "edit", "ann", "too little", f"--letter {NAME}",
    )  # fmt: skip
    assert (asked.edit.value, asked.edit.retries) == (b'{"amount":2.50,"to":"x"}', True)
    assert [each[:2] for each in console.audit.told] == [("reveal", "ann"), ("reveal", "ann")]


def test_a_form_that_is_sent_twice_is_one_action(console: ActingConsole, kafka: Kafka) -> None:
    page = Page(console)
    first, second = (page.send('{"amount":3,"to":"x"}') for _ in range(2))
    assert first.headers["location"] == second.headers["location"]
    assert len(kafka.started) == 1
    # Another form is another action: which of the two comes too late, the workers say.
    assert Page(console).send('{"amount":3,"to":"x"}').headers["location"] != first.headers["location"]


def test_who_may_not_see_the_payload_may_not_edit(console: ActingConsole, kafka: Kafka) -> None:
    for viewer, status in ((BOB, 403), (VIC, 403), (EVE, 404)):
        for path in ("edit", "difference"):
            answer = console.ask(viewer, "POST", f"/letters/{NAME}/{path}", {"value": "{}", "do": "save"})
            assert (answer.status_code, "amount" in answer.text) == (status, False)
    assert console.audit.told == kafka.started == []
    assert 'id="edit"' not in Page(console, VIC).text
    assert "Edit and retry" not in console.ask(BOB, "GET", f"/letters/{NAME}").text
    assert "Edit and retry…" in console.ask(ANN, "GET", f"/letters/{NAME}").text
    # Nor by any other way in.
    begun = console.ask(BOB, "POST", "/api/actions", json={"kind": "edit", "letters": [NAME], "value": "{}"})
    assert (begun.status_code, "right to reveal" in begun.text) == (409, True)


def test_what_is_typed_is_checked_and_compared_and_nothing_is_done(console: ActingConsole, kafka: Kafka) -> None:
    page = Page(console)
    checked = page.send('{"amount": 2.50, "to": "<b>"}', do="check", reason="<i>")
    assert checked.status_code == 200
    assert re.findall('<span class="(added|removed)">. ([^\n]*)', checked.text) == [
        ("removed", "  &#34;amount&#34;: 1.10,"), ("removed", "  &#34;to&#34;: &#34;x&#34;"),
        ("added", "  &#34;amount&#34;: 2.50,"), ("added", "  &#34;to&#34;: &#34;&lt;b&gt;&#34;"),
    ]  # fmt: skip
    assert "4 lines differ; it can be saved" in checked.text
    assert ('value="&lt;i&gt;"' in checked.text, "<b>" in checked.text) == (True, False)
    part = page.send('{"amount": é2}', path="difference")
    assert (part.status_code, "<html" in part.text) == (200, False)
    assert "Line 1, column 12: this is not JSON" in part.text
    assert 'data-position="11"' in part.text
    for typed, told in (
        ('{"amount": 2', "this is not JSON"), ('{"amount":  1.10, "to": "x"}', "Nothing is changed but the layout"),
    ):  # fmt: skip
        refused = page.send(typed)
        assert (refused.status_code, told in refused.text, "It was not saved" in refused.text) == (409, True, True)
    assert kafka.started == []
    # It was revealed once, and is the same since.
    assert len(console.audit.told) == 1


def test_only_what_was_seen_is_replaced(console: ActingConsole, kafka: Kafka) -> None:
    page = Page(console)
    console.replica.payloads.records = {NAME: record(NAME, b'{"amount":7,"to":"y"}')}
    refused = page.send('{"amount":3,"to":"x"}')
    assert (refused.status_code, "is another one since you revealed it" in refused.text) == (409, True)
    assert len(console.audit.told) == 2
    page.text = refused.text
    assert page.send('{"amount":3,"to":"x"}').status_code == 303
    assert len(kafka.started) == 1


def test_what_cannot_be_done_is_said_above_what_was_typed(console: ActingConsole, kafka: Kafka) -> None:
    kafka.letters = 0
    page = Page(console)
    refused = page.send('{"amount":3,"to":"x"}')
    assert (refused.status_code, "Nothing can be done for this letter: they are schedules" in refused.text) == (409, True)
    assert "&#34;amount&#34;:3" in refused.text
    kafka.letters, kafka.fault = 1, ActionRefused("it was not possible")
    assert "it was not possible" in page.send('{"amount":3,"to":"x"}').text


@pytest.mark.parametrize(
    ("value", "text", "typed", "made"),
    [
        (b"two\r\nlines", "two\nlines</textarea>", "two\r\nwords", b"two\r\nwords"),
        (b"\x00\xff", "00 ff</textarea>", "00 fe", b"\x00\xfe"),
        (b"a\xe2\x80\xaeb", "61 e2 80 ae 62</textarea>", "61 62", b"ab"),
        (b'{"a": "\xe2\x80\xae", "n": 1}', "\\u202e", '{"a": "\\u202e", "n": 2}', b'{"a": "\xe2\x80\xae", "n": 2}'),
    ],
)  # fmt: skip
def test_text_and_bytes_are_edited_as_they_came(
    console: ActingConsole, kafka: Kafka, value: bytes, text: str, typed: str, made: bytes
) -> None:
    console.replica.payloads.records = {NAME: record(NAME, value)}
    page = Page(console)
    assert text in page.text
    assert page.send(typed).status_code == 303
    assert kafka.requests[0].edit.value == made


@pytest.mark.parametrize(
    ("value", "told"), [(None, "The record has no value"), (b"[" + b"1," * (70 << 10) + b"1]", "is too large for this page")]
)
def test_what_a_form_cannot_carry_says_so(console: ActingConsole, kafka: Kafka, value: bytes | None, told: str) -> None:
    console.replica.payloads.records = {NAME: record(NAME, value)}
    shown = console.ask(ANN, "POST", f"/letters/{NAME}/reveal").text
    assert (told in shown, "<textarea" in shown) == (True, False)
    # The button leads there, too.
    assert ('href="#value"' in shown, shown.count('id="value"')) == (True, 1)
    assert console.ask(ANN, "POST", f"/letters/{NAME}/edit", {"value": "1", "do": "save"}).status_code == 409


def test_a_framed_value_is_edited_as_json_by_its_schema(console: ActingConsole, kafka: Kafka) -> None:
    registry = RegistryServer()
    try:
        registry.add(7, '{"type": "record", "name": "Order", "fields": [{"name": "cents", "type": "long"}]}')
        framed = confluent(7, formats.encode_avro({"cents": 5}, formats.parse_avro_schemas([registry.schemas[7]["schema"]])))
        console.console.__dict__["framed"] = FramedValues({"url": registry.url})
        console.replica.payloads.records = {NAME: record(NAME, framed)}
        page = Page(console)
        assert ("Value, as JSON by its schema" in page.text, "<summary>Avro</summary>" in page.text) == (True, True)
        refused = page.send('{"cents": "many"}')
        assert (refused.status_code, "schema 7 does not take this value" in refused.text) == (409, True)
        assert page.send('{"cents": 6}').status_code == 303
        edit = kafka.requests[0].edit
        assert edit.framing.encode_json(framed, edit.value) == framed[:5] + b"\x0c"
        registry.schemas.clear()
        console.console.__dict__["framed"] = FramedValues({"url": registry.url})
        # Without its schema it is bytes.
        assert "Value, as bytes, hexadecimal" in Page(console).text
    finally:
        registry.close()
