"""Fields that a policy masks for a role are shown by their shape alone, wherever a payload is, and not edited by that role."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest
from starlette.exceptions import HTTPException

from retry.console.notifications.events import Candidate, Happenings
from retry.console.notifications.rule_file import NEW_FAILURE, Rule
from retry.console.web import letter as letter_page
from retry.console.web.masks import mask_json
from retry.console.web.rights import Role, Viewer
from retry.errors import PolicyFileInvalid
from retry.policies.masks import list_masking_teams
from retry.policies.policy_file import parse as policy_file
from tests.support.acting_console import POLICIES, ActingConsole
from tests.support.console import NOW_MS, group, letter, record
from tests.unit.console.test_actions_asked import Kafka

NAME = "parked/0/1"
VALUE = b'{"id":1,"customer":{"card":"4111-1111","name":"Jane Doe"},"lines":[{"iban":"DE02"}]}'
MASKS = 'shop:\n    masks: {$.customer.card: operator, "$.lines[].iban": viewer, $.customer.name: admin}\n'
VIC, ANN, AMY = (
    Viewer(name, {"shop": role}, frozenset({"shop"})) for name, role in zip(("vic", "ann", "amy"), Role, strict=True)
)
SECRETS = ("4111-1111", "DE02", "Jane Doe")


@pytest.fixture
def console() -> Iterator[ActingConsole]:
    made = ActingConsole()
    made.registry = policy_file(POLICIES.replace("shop:\n", MASKS), "policies.yaml")
    made.replica.rows = [letter(1, "shop")]
    made.replica.payloads.records = {NAME: record(NAME, VALUE)}
    yield made
    made.close()


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    return Kafka(monkeypatch)


@pytest.mark.parametrize(("viewer", "seen"), [(VIC, set()), (ANN, {"DE02"}), (AMY, {"DE02", "4111-1111"})])
def test_a_role_sees_what_is_not_masked_for_it(console: ActingConsole, kafka: Kafka, viewer: Viewer, seen: set[str]) -> None:
    page = console.ask(viewer, "POST", f"/letters/{NAME}/reveal").text
    assert {secret for secret in SECRETS if secret in page} == seen
    assert "masked: text of 8" in page
    assert "Masked for you: " in page
    # Neither as text nor as bytes.
    assert b"4111".hex(" ") not in page or "4111-1111" in seen
    told = console.ask(viewer, "GET", f"/api/letters/{NAME}?reveal=1").json()
    value = base64.b64decode(told["value_base64"]).decode()
    assert {secret for secret in SECRETS if secret in value} == seen
    assert json.loads(value)["id"] == 1
    assert len(told["masked"]) == 3 - len(seen)


def test_what_is_masked_is_in_no_form_and_is_edited_in_no_way(console: ActingConsole, kafka: Kafka) -> None:
    kafka.letters = 1
    page = console.ask(ANN, "POST", f"/letters/{NAME}/reveal").text
    assert ("Fields of this value are masked for you" in page, "<textarea" in page) == (True, False)
    for path in ("edit", "difference"):
        answer = console.ask(ANN, "POST", f"/letters/{NAME}/{path}", {"value": '{"id":2}', "do": "save"})
        assert [secret for secret in SECRETS if secret in answer.text] == (["DE02"] if path == "edit" else [])
        assert "Fields of this value are masked for you" in answer.text
    asked = {"kind": "edit", "letters": [NAME], "value": '{"id":2}'}
    refused = console.ask(ANN, "POST", "/api/actions", json=asked)
    assert (refused.status_code, "masked for you" in refused.text) == (409, True)
    assert kafka.started == []


def test_what_a_patch_changes_is_not_shown_where_fields_are_masked(console: ActingConsole, kafka: Kafka) -> None:
    kafka.diff = ["-4111-1111"]
    asked = {"kind": "patch", "filter": "team:shop", "merge_patch": {"id": 2}}
    assert [each["diff"] for each in console.ask(ANN, "POST", "/api/actions", json=asked).json()["examples"]] == [
        ["what changes is not shown: that takes the right to reveal payloads, with nothing masked but keys"]
    ]
    assert console.audit.told == []


def test_a_filter_does_not_tell_what_is_masked(console: ActingConsole, kafka: Kafka) -> None:
    for path in ("/letters?q=value.$.customer.card%3D4111*", "/api/letters?q=value.$.id%3D1", "/failures?q=value.$.id%3D1"):
        refused = console.ask(ANN, "GET", path)
        assert (refused.status_code, "masked for you" in refused.text) == (403, True), path


@pytest.mark.parametrize("value", [b"4111-1111 Jane Doe", b"\xff\x00DE02", b'{"customer": {"card": "4111-1111"', b"[" * 90_000])
def test_what_is_no_json_is_not_shown_where_fields_are_masked(console: ActingConsole, kafka: Kafka, value: bytes) -> None:
    console.replica.payloads.records = {NAME: record(NAME, value)}
    page = console.ask(VIC, "POST", f"/letters/{NAME}/reveal")
    assert (page.status_code, [secret for secret in SECRETS if secret in page.text]) == (200, [])
    assert "it is no JSON in which these could be found" in page.text
    assert "Its shape" in page.text
    assert console.ask(VIC, "GET", f"/api/letters/{NAME}?reveal=1").json()["value_base64"] is None


def test_no_duplicate_no_list_and_no_union_hides_a_field_from_its_mask() -> None:
    for text in (
        b'{"a": {"b": "4111"}, "a": {"b": "4111"}}', b'[[{"a": [{"b": "4111"}]}]]',
        b'{"a": {"shop.A": {"b": {"string": "4111"}}}}', b'{"\\u0061": {"\\u0062": "4111"}}',
    ):  # fmt: skip
        assert "4111" not in (mask_json(text, ["$.a.b"]) or "4111"), text
    assert json.loads(mask_json(b'{"a": 5}', ["$.a.b"]) or "") == {"a": 5}
    assert json.loads(mask_json(b'{"a": 5}', ["$"]) or "") == "masked: object of 1"


OTHERS = "shop:\n    masks: {key: operator, message: viewer, header.x-customer-*: operator}\n"
HEADERS = [
    ("X-Customer-Card", b"4111-1111"), ("tenant", b"acme"), ("copied", b"no: order 1 failed!"),
    ("kafka_dlt-exception-fqcn", b"a.GatewayTimeout"), ("kafka_dlt-exception-message", b"order 1 failed"),
    ("kafka_dlt-exception-stacktrace", b"a.GatewayTimeout: order 1 failed\n\tat a.b.Shop.sell(Shop.java:3)\n"),
]
MESSAGE = "order 1 failed"


@pytest.fixture
def masking(console: ActingConsole) -> ActingConsole:
    """A policy that masks keys, messages and headers, and a letter with a stack trace."""
    console.registry = policy_file(POLICIES.replace("shop:\n", OTHERS), "policies.yaml")
    console.replica.rows = [letter(1, "shop", key=b"key-of-jane")]
    console.replica.kinds = [group("f00d", ("shop",), message="order of Jane failed")]
    console.replica.payloads.records = {NAME: record(NAME, VALUE, HEADERS)}
    return console


@pytest.mark.parametrize("path", [
    f"/letters/{NAME}", "/letters", "/failures", "/failures/f00d", "/", f"/api/letters/{NAME}", "/api/letters", "/api/groups",
    "/api/groups/f00d", f"/api/letters/{NAME}?reveal=1",
])  # fmt: skip
def test_keys_and_messages_are_shown_to_whoever_may_see_them(masking: ActingConsole, kafka: Kafka, path: str) -> None:
    def find_shown(viewer: Viewer) -> set[str]:
        text = masking.ask(viewer, "GET", path).text
        secrets = (MESSAGE, "order of Jane", "key-of-jane", "Shop.sell", "4111-1111")
        return {each for each in secrets if each in text or base64.b64encode(each.encode()).decode() in text}

    assert find_shown(AMY) or path == "/"
    assert find_shown(VIC) == set()
    assert find_shown(ANN) == find_shown(AMY) - {"key-of-jane", "4111-1111"}


def test_masked_headers_are_shown_by_their_length(masking: ActingConsole, kafka: Kafka) -> None:
    page = masking.ask(ANN, "POST", f"/letters/{NAME}/reveal").text
    headers = page[page.index("headers-title") :]
    assert ("4111-1111" in headers, "acme" in headers, "Shop.sell" in page) == (False, True, True)
    page = masking.ask(VIC, "POST", f"/letters/{NAME}/reveal").text
    headers = page[page.index("headers-title") :]
    # A header of another name that has the message is masked as well.
    assert [text in headers for text in ("4111-1111", "acme", "a.GatewayTimeout", MESSAGE)] == [False, True, True, False]
    told = masking.ask(VIC, "GET", f"/api/letters/{NAME}?reveal=1").json()
    assert {name for name, value in told["headers"] if value is None} == {
        "X-Customer-Card", "copied", "kafka_dlt-exception-message", "kafka_dlt-exception-stacktrace"
    }  # fmt: skip
    assert told["masked"] == ["header.x-customer-*", "key", "message"]


def test_an_explanation_has_no_message_that_is_masked(masking: ActingConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letter_page, "_explain", lambda *given: {"what failed": [MESSAGE] if given[-1] else []})
    for viewer, told in ((VIC, []), (AMY, [MESSAGE])):
        answer = masking.ask(viewer, "GET", f"/api/letters/{NAME}?explain=1").json()
        assert answer["explained"] == {"what failed": told}


def test_a_stack_alone_may_be_masked(masking: ActingConsole, kafka: Kafka) -> None:
    masking.registry = policy_file(POLICIES.replace("shop:\n", "shop:\n    masks: {stack: admin}\n"), "policies.yaml")
    page = masking.ask(AMY, "POST", f"/letters/{NAME}/reveal").text
    assert ("Shop.sell" in page, MESSAGE in page, "key-of-jane" in page) == (False, True, True)


@pytest.mark.parametrize("path", ["/letters?q=", "/api/letters?q=", "/failures?q=", "/api/groups?q="])
def test_a_filter_does_not_tell_keys_and_messages_that_are_masked(masking: ActingConsole, kafka: Kafka, path: str) -> None:
    asked = ((VIC, "message:jane", 403), (ANN, "message:jane", 200), (ANN, "-key:k*", 403), (AMY, "key:k*", 200))
    for viewer, words, status in asked:
        answer = masking.ask(viewer, "GET", path + words)
        assert (answer.status_code, "masked for you in one" in answer.text) == (status, status == 403), (viewer, words)


def test_a_part_of_a_page_tells_no_more_than_the_page(masking: ActingConsole) -> None:
    for part in ("letters", "failures"):
        render = masking.console.live._parts[part]
        with pytest.raises(HTTPException, match="masked for you"):
            render(ANN.sight(), "q=key%3Ak*")
        assert MESSAGE not in render(VIC.sight(), "q=")


def test_a_notification_has_no_message_of_a_team_that_masks_it(masking: ActingConsole) -> None:
    rule = Rule("r", "chat", None, frozenset({NEW_FAILURE}), filter="", at_least=1, quiet_hours=None)
    silent: tuple[str, ...] = ()
    happenings = Happenings(masking.replica, lambda: NOW_MS, lambda: silent)
    shown = happenings.describe(Candidate(NEW_FAILURE, "new", None, "f00d"), rule)
    silent = ("shop",)
    hidden = happenings.describe(Candidate(NEW_FAILURE, "new", None, "f00d"), rule)
    assert shown is not None and hidden is not None
    assert ("Jane" in shown.sentence, "Jane" in hidden.sentence, hidden.data["message"]) == (True, False, None)
    assert list_masking_teams(masking.registry.masks, "message") == {"shop"}


@pytest.mark.parametrize(
    ("masks", "told"),
    [
        ("{customer: operator}", "is no path of a field, and no other part"),
        ("{header.: viewer}", "no other part"), ("{$.a: boss}", "'boss' is no role"),
        ("{$.a..b: viewer}", "is no path"), ("[$.a]", "expected `mapping`"), ("{$.a: [viewer]}", "expected `str`"),
    ],
)  # fmt: skip
def test_a_mask_that_is_misspelt_is_refused(masks: str, told: str) -> None:
    with pytest.raises(PolicyFileInvalid, match=told):
        policy_file(POLICIES.replace("shop:\n", f"shop:\n    masks: {masks}\n"), "policies.yaml")
