"""Actions as the console takes them: previewed for who may act, started once, and refused with what to do instead."""

from __future__ import annotations

import csv
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from retry.console.acting import action_pages, actions, api, standing_actions
from retry.console.reading.action_outcomes import ActionOutcome, SentOutcome
from retry.console.rows import Freshness
from retry.console.web.rights import Role, Viewer
from retry.delay_queue import action_records
from retry.delay_queue.action_records import Action, Member, Order, Tally
from retry.delay_queue.ramp_records import Ramp
from retry.delivery.ramp import StepCounts
from retry.errors import TransactionAborted
from retry.operations.act import overview
from retry.operations.act.action_report import MEMBER_COLUMNS, MemberResult
from retry.operations.act.audit import AuditLetter
from retry.operations.act.choose import Chosen
from retry.operations.act.options import KINDS
from retry.operations.act.overview import ActionOverview
from retry.operations.act.preview import ExampleChange, Preview
from tests.support.acting_console import ActingConsole
from tests.support.console import NOW_MS, letter

ANN = Viewer("ann", {"shop": Role.OPERATOR}, frozenset({"shop"}))
BOB = Viewer("bob", {"shop": Role.OPERATOR, "bank": Role.VIEWER})
EVE = Viewer("eve", {"bank": Role.ADMIN}, frozenset({"bank"}))
ADA = Viewer("ada", {"*": Role.ADMIN}, frozenset({"*"}))
ASKED = {"kind": "retry", "filter": "team:shop"}


class Kafka:
    """Stands in for what an action asks of brokers: previews of letters that are given, and starts that are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.letters, self.teams, self.diff = 3, ["shop"], list[str]()
        self.scopes: list[Any] = []
        self.orders: Counter[tuple[str, bytes | None]] = Counter()
        self.started: list[str] = []
        self.requests: list[Any] = []
        self.standing: list[ActionOverview] = []
        self.fault: Exception | None = None
        self.starting = threading.Event()
        self.starting.set()
        monkeypatch.setattr(standing_actions, "await_shown", lambda _holds: None)
        shards = SimpleNamespace(admin=None, count=1, now_ms=lambda: NOW_MS)
        monkeypatch.setattr(standing_actions, "load_shard_numbers", lambda _: shards)
        monkeypatch.setattr(actions.start, "demand_readiness", lambda *_: None)
        monkeypatch.setattr(actions, "Cluster", lambda _: None)
        monkeypatch.setattr(actions, "preview", self.preview)
        monkeypatch.setattr(actions.start, "start", self.start)
        monkeypatch.setattr(actions.overview, "list_overviews", lambda _: self.standing)

    def preview(self, _settings: Any, _registry: Any, request: Any, selects: Any, now_ms: int, *_: Any, **__: Any) -> Preview:
        each = {"state": "waiting", "name": "1/orders.DLT/0/1", "source": None, "value": b'{"card": 4711}'}
        letters = [SimpleNamespace(team=team, **each) for team in ("shop", "bank", None)]
        self.scopes.append([letter.team for letter in letters if selects(letter)])
        chosen = Chosen(now_ms)
        chosen.keys = [[b"k"] * self.letters]
        chosen.groups["team"].update(dict.fromkeys(self.teams, self.letters))
        chosen.targets.update({"orders.retry": self.letters})
        chosen.refused["named"] = 2
        chosen.ordered, chosen.orders = self.orders.total(), self.orders
        request = request._replace(action=msgspec.structs.replace(request.action, teams=self.teams))
        examples = [ExampleChange("1/orders.DLT/0/1", NOW_MS, "orders.retry", self.diff)]
        return Preview(request, chosen, now_ms, examples, edited=Member(b"k", NOW_MS) if request.edit else None)

    def start(self, _shards: Any, request: Any, *_: Any) -> None:
        assert self.starting.wait(30)
        self.started.append(request.id.hex())
        self.requests.append(request)
        if self.fault:
            raise self.fault


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    return Kafka(monkeypatch)


@pytest.fixture
def console() -> Iterator[ActingConsole]:
    made = ActingConsole()
    yield made
    made.close()


def overview_of(action_id: str, teams: list[str], **more: Any) -> ActionOverview:
    """An action of three letters that runs."""
    action = msgspec.structs.replace(Action("retry", "ann", NOW_MS, [1], 3), teams=teams)
    given = {"held": None, "cancelled": None, "tally": Tally(), "left": [0], "ended_hold_ms": 0, **more}
    return ActionOverview(bytes.fromhex(action_id), action, **given)


def ask_actions(console: ActingConsole, viewer: Viewer = ANN, **more: Any) -> dict[str, Any]:
    answer = console.ask(viewer, "POST", "/api/actions", json={**ASKED, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()  # type: ignore[no-any-return]


def start_action(console: ActingConsole, action_id: str, viewer: Viewer = ANN, expect: int | None = None) -> Any:
    return console.ask(viewer, "POST", f"/api/actions/{action_id}/start", json={"expect": expect})


def test_a_preview_says_whose_order_is_overtaken(console: ActingConsole, kafka: Kafka) -> None:
    kafka.orders.update({("orders.DLT", b"customer-17<b>"): 2, ("orders.DLT", None): 7})
    told = ask_actions(console, kind="discard")
    assert told["ordered"] == 9
    html = console.ask(ANN, "GET", f"/act/{told['id']}").text
    assert "<strong>9 keep an order</strong>: the policy keeps the letters of one key in order: later ones" in html
    assert "key <code>customer-17&lt;b&gt;</code> of <code>orders.DLT</code>: 2" in html
    assert "further keys of <code>orders.DLT</code>: 7" in html


def test_only_letters_of_teams_that_somebody_may_act_for_are_meant(console: ActingConsole, kafka: Kafka) -> None:
    for viewer in (ANN, BOB, EVE, ADA):
        ask_actions(console, viewer, filter="state:waiting")
    assert kafka.scopes == [["shop"], ["shop"], ["bank"], ["shop", "bank", None]]


def test_a_preview_says_what_would_become_of_how_many_letters_and_why_not_of_others(console: ActingConsole, kafka: Kafka) -> None:
    kafka.letters = 1_500
    told = ask_actions(console, reason="mended")
    assert (told["letters"], told["steps"], told["count_is_asked"]) == (1_500, [1, 2, 5, 20, 50, 200, 1_000, 222], True)
    assert told["refused"] == [
        {"reason": "named", "letters": 2, "told": "they are schedules, tasks or timers; cancel them where they came in"}
    ]
    # Ten letters of the team in a second, and eight steps that are judged after two minutes of silence.
    assert (told["takes_ms"], told["takes_by"]) == (150_000 + 8 * 120_000, "8 steps are judged after 120 s each")
    page = console.ask(ANN, "GET", f"/act/{told['id']}").text
    assert "1,500 letters to retry" in page
    assert "2 more: they are schedules, tasks or timers" in page
    assert "No consumer group is named for" in page
    assert kafka.started == []


def test_it_is_started_once_however_often_and_by_however_many_at_a_time(console: ActingConsole, kafka: Kafka) -> None:
    action_id = ask_actions(console)["id"]
    kafka.starting.clear()
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(start_action, console, action_id) for _ in range(4)]
        kafka.starting.set()
        assert [answer.result().status_code for answer in answers] == [200] * 4
    assert start_action(console, action_id).status_code == 200
    assert kafka.started == [action_id]
    assert console.ask(ANN, "GET", f"/api/actions/{action_id}").json()["state"] == "started"


def test_what_was_started_elsewhere_or_before_a_restart_is_not_started_again(console: ActingConsole, kafka: Kafka) -> None:
    mine, theirs = "00000000000000aa", "00000000000000bb"
    kafka.standing = [overview_of(mine, ["shop"]), overview_of(theirs, ["shop", "bank"])]
    assert start_action(console, mine).json() == {"id": mine, "state": "started"}
    assert start_action(console, theirs).status_code == 404
    assert start_action(console, "00000000000000cc").status_code == 404
    assert kafka.started == []


def test_an_expired_preview_is_gone_and_says_what_to_do(console: ActingConsole, kafka: Kafka) -> None:
    action_id = ask_actions(console)["id"]
    console.now_ms += 3_000_001
    answer = start_action(console, action_id)
    assert (answer.status_code, "preview it again" in answer.json()["detail"]) == (410, True)
    assert start_action(console, action_id, EVE).status_code == 404
    assert kafka.started == []


def test_nobody_else_sees_or_starts_a_preview(console: ActingConsole, kafka: Kafka) -> None:
    action_id = ask_actions(console)["id"]
    for viewer in (BOB, EVE, ADA):
        assert start_action(console, action_id, viewer).status_code == 404
        assert console.ask(viewer, "GET", f"/api/actions/{action_id}").status_code == 404
        assert console.ask(viewer, "GET", f"/act/{action_id}").status_code == 404
    assert kafka.started == []


def test_a_preview_is_not_shown_to_who_may_not_see_its_letters_or_payloads_any_more(
    console: ActingConsole, kafka: Kafka
) -> None:
    kafka.diff = ["-4711"]
    action_id = ask_actions(console)["id"]
    of_another_team, blind = Viewer("ann", EVE.roles, EVE.reveal), Viewer("ann", ANN.roles)
    for path in (f"/api/actions/{action_id}", f"/act/{action_id}"):
        assert "4711" in console.ask(ANN, "GET", path).text
        for viewer in (of_another_team, blind):
            answer = console.ask(viewer, "GET", path)
            assert (answer.status_code, "4711" in answer.text) == (404, False)


def test_who_has_lost_the_role_since_the_preview_starts_nothing(console: ActingConsole, kafka: Kafka) -> None:
    action_id = ask_actions(console)["id"]
    assert start_action(console, action_id, Viewer("ann", {"shop": Role.VIEWER, "bank": Role.OPERATOR})).status_code == 403
    assert start_action(console, action_id, Viewer("ann", {"bank": Role.OPERATOR})).status_code == 404
    assert kafka.started == []
    assert start_action(console, action_id).status_code == 200


@pytest.mark.parametrize(
    ("letters", "expect", "told"),
    [(1_001, None, "type their number"), (1_001, 1_000, "not 1,000"), (3, 2, "not 2"), (0, None, "there is no letter")],
)
def test_another_number_than_was_previewed_is_refused(
    console: ActingConsole, kafka: Kafka, letters: int, expect: int | None, told: str
) -> None:
    kafka.letters = letters
    action_id = ask_actions(console)["id"]
    answer = start_action(console, action_id, expect=expect)
    assert (answer.status_code, told in answer.json()["detail"]) == (409, True)
    assert kafka.started == []
    if letters:
        assert start_action(console, action_id, expect=letters).status_code == 200


def test_after_a_start_that_failed_the_changelog_says_whether_it_began(console: ActingConsole, kafka: Kafka) -> None:
    kafka.fault = TransactionAborted("no broker")
    action_id = ask_actions(console)["id"]
    assert start_action(console, action_id).status_code == 503
    again = start_action(console, action_id)
    assert (again.status_code, "preview it again" in again.json()["detail"]) == (409, True)
    kafka.standing = [overview_of(action_id, ["shop"])]
    assert start_action(console, action_id).status_code == 200
    assert kafka.started == [action_id]


def test_a_change_of_payloads_is_shown_to_who_may_see_them_once_the_audit_has_it(console: ActingConsole, kafka: Kafka) -> None:
    kafka.letters, kafka.diff = 1, ['-  "card": "4711"']
    patch = {"kind": "patch", "merge_patch": {"card": None}}
    shown = ask_actions(console, **patch)
    assert shown["examples"][0]["diff"] == kafka.diff
    assert console.audit.told == [("reveal", "ann", "", ["1/orders.DLT/0/1"], ["shop"])]
    hidden = ask_actions(console, BOB, **patch)
    assert "4711" not in str(hidden)
    assert len(console.audit.told) == 1
    # Where it cannot be written down, nothing is shown.
    console.audit.trouble = TransactionAborted("no broker")
    assert console.ask(ANN, "POST", "/api/actions", json={**ASKED, **patch}).status_code == 503


def test_a_filter_on_payloads_takes_the_right_to_see_them_and_is_in_the_audit(console: ActingConsole, kafka: Kafka) -> None:
    words = {"filter": "value.$.card=4711"}
    assert console.ask(BOB, "POST", "/api/actions", json={**ASKED, **words}).status_code == 403
    assert ask_actions(console, **words)["letters"] == 3
    assert console.audit.told == [("reveal", "ann", "filter value.$.card=4711", [], ["shop"])]


@pytest.mark.parametrize(
    ("given", "status", "told"),
    [
        ({"filter": "team"}, 400, "column"),
        ({"filter": ""}, 409, "say which letters"),
        ({"kind": "send"}, 400, "kind: it is one of retry"),
        ({"kind": "retry", "to": "x"}, 400, "to does not go with retry"),
        ({"kind": "retry", "spread": "soon"}, 400, "spread: "),
        ({"kind": "retry", "at": "yesterday"}, 400, "at: "),
        ({"kind": "retry", "keep": 2}, 400, "keep: "),
        ({"kind": "retry", "letters": ["a/b"]}, 409, "'a/b' is no name of a letter"),
        ({"kind": "patch", "merge_patch": {}, "set_headers": {"retry-id": "1"}}, 409, "this service's own"),
        ({"kind": "edit", "value": "a", "value_base64": "YQ=="}, 400, "not both"),
        ({"kind": "edit", "value_base64": "?"}, 400, "no base64"),
        ({"kind": "retry", "unknown": 1}, 400, "unknown"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_words(
    console: ActingConsole, kafka: Kafka, given: dict[str, Any], status: int, told: str
) -> None:
    answer = console.ask(ANN, "POST", "/api/actions", json={**ASKED, **given})
    assert (answer.status_code, told in answer.json()["detail"]) == (status, True), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_orders_are_for_operators_of_all_its_teams(
    console: ActingConsole, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered: list[tuple[Any, ...]] = []
    for what in overview.ORDERS:
        order = lambda _shards, about, by, reason, what=what: ordered.append((what, about.id.hex(), by, reason))  # noqa: E731
        monkeypatch.setitem(overview.ORDERS, what, order)
    action_id = "00000000000000aa"
    hold = Order("worker", NOW_MS)
    kafka.standing = [
        overview_of(action_id, ["shop"], held=hold), overview_of("00000000000000bb", ["bank", "shop"]), overview_of("0" * 16, []),
    ]  # fmt: skip
    for what in ("hold", "resume", "cancel"):
        for viewer, other, status in ((EVE, action_id, 404), (BOB, "00000000000000bb", 403), (ANN, "0" * 16, 404)):
            assert console.ask(viewer, "POST", f"/api/actions/{other}/{what}", json={}).status_code == status
        assert console.ask(ANN, "POST", f"/api/actions/{action_id}/{what}", json={"reason": "why"}).status_code == 202
    assert ordered == [(what, action_id, "ann", "why") for what in ("hold", "resume", "cancel")]
    # Whoever gives an order tells the audit, in one transaction.
    assert console.audit.told == []
    # What no version wrote the teams of is seen by who sees every team.
    assert console.ask(ADA, "POST", f"/api/actions/{'0' * 16}/hold", json={}).status_code == 202


def test_forms_go_the_same_way_and_keep_what_was_typed_where_it_is_refused(console: ActingConsole, kafka: Kafka) -> None:
    typed = {"kind": "retry", "q": "team:shop", "to": "slow<b>", "keep": "2", "reason": "mended"}
    refused = console.ask(ANN, "POST", "/act", typed)
    assert (refused.status_code, "keep: it is a part of letters, between 0 and 1" in refused.text) == (400, True)
    assert 'value="slow&lt;b&gt;"' in refused.text
    assert 'value="mended"' in refused.text
    begun = console.ask(ANN, "POST", "/act", {"kind": "retry", "q": "team:shop", "to": "", "spread": "1h", "ramp": ""})
    assert begun.status_code == 303
    preview = begun.headers["location"]
    typed = console.ask(ANN, "POST", f"{preview}/start", {"expect": "many"})
    # Going back from there, or loading it again, sends nothing.
    assert (typed.status_code, typed.headers["location"]) == (303, preview)
    assert "is no number of letters" in console.ask(ANN, "GET", preview).text
    done = console.ask(ANN, "POST", f"{preview}/start", {"expect": "3"})
    assert (done.status_code, done.headers["location"]) == (303, preview.replace("/act/", "/actions/"))
    assert len(kafka.started) == 1


def test_the_form_counts_what_its_kind_hides_as_not_given(console: ActingConsole, kafka: Kafka) -> None:
    hidden = {"to": "slow", "has_value": "yes", "value": "new", "merge_patch": "{", "set_headers": "no colon"}
    begun = console.ask(ANN, "POST", "/act", {"kind": "retry", "q": "team:shop", "spread": "1h", **hidden})
    assert begun.status_code == 303, begun.text
    parked = console.ask(ANN, "POST", "/act", {"kind": "park", "q": "team:shop", "spread": "soon", "keep": "2"})
    assert parked.status_code == 303, parked.text
    assert '<h1 id="blast">3 letters to park</h1>' in console.ask(ANN, "GET", parked.headers["location"]).text
    # What the kind asks for is read as ever.
    patch = console.ask(ANN, "POST", "/act", {"kind": "patch", "q": "team:shop", "set_headers": "no colon"})
    assert (patch.status_code, "is not `name: value`" in patch.text) == (400, True)


def test_every_field_of_the_form_is_of_a_kind_or_of_all(console: ActingConsole, kafka: Kafka) -> None:
    page = console.ask(ANN, "GET", "/act?q=team:shop").text
    parts = {name: set(kinds.split()) for kinds, name in re.findall(r'data-kinds="([^"]+)"[^>]*>\s*<label for="(\w+)"', page)}
    assert parts["to"] == {"redirect"}
    assert parts["merge_patch"] == {"patch"}
    assert all(f'id="kind-{kind}"' in page for kind in KINDS)


@pytest.mark.parametrize(("kind", "is_red"), [("retry", False), ("park", False), ("discard", True)])
def test_only_what_gives_letters_up_is_red(console: ActingConsole, kafka: Kafka, kind: str, is_red: bool) -> None:
    page = console.ask(ANN, "GET", f"/act/{ask_actions(console, kind=kind)['id']}").text
    assert ('class="danger"' in page) == is_red


def test_a_preview_shows_key_and_message_of_its_examples_and_how_many_more_there_are(
    console: ActingConsole, kafka: Kafka
) -> None:
    kafka.letters = 23
    preview = f"/act/{ask_actions(console)['id']}"
    assert "not here any more" in console.ask(ANN, "GET", preview).text
    console.replica.rows = [letter(1, "shop", name="1/orders.DLT/0/1", key=b"order-<b>17", message="no answer for order 17")]
    page = console.ask(ANN, "GET", preview).text
    assert '<a href="/letters/1/orders.DLT/0/1">orders.DLT/0/1</a>' in page
    assert "key <code>order-&lt;b&gt;17</code>" in page
    assert "no answer for order 17" in page
    assert '+22 more: <a href="/letters?q=team%3Ashop">' in page
    # What is to be confirmed comes before all that may be long.
    assert page.index("Retry 23 letters</button>") < page.index("For example") < page.index("What they have in common")


def test_who_else_acts_on_the_letters_is_said_before_it_is_confirmed(console: ActingConsole, kafka: Kafka) -> None:
    kafka.letters = 1_001
    preview = f"/act/{ask_actions(console)['id']}"
    assert 'id="others"' not in console.ask(ANN, "GET", preview).text
    ramp = Ramp(0.9, [1, 2], 10, 20)
    kafka.standing = [
        overview_beside("0d", "patch", ["shop"], filter="exception:<b>"), overview_beside("0a", "retry", ["shop"], ramp=ramp),
        overview_beside("0b", "discard", ["bank"]), overview_beside("0c", "park", ["bank", "shop"], filter="all:secret"),
        overview_beside("0e", "park", ["shop"])._replace(left=[]),
    ]  # fmt: skip
    page = console.ask(ANN, "GET", preview).text
    told = page[page.index('id="others"') : page.index("Type the number of letters: 1,001")]
    assert "Others act on letters of the same teams now" in told
    assert re.findall(r'href="/actions/(\w+)"', told) == ["0a" * 8, "0d" * 8]
    assert "step 1 of 2: <strong>with the same filter</strong>" in told
    assert "<code>exception:&lt;b&gt;</code>" in told
    assert "1 that you may not see, as it is about letters of other teams, too" in told
    assert "secret" not in page
    kafka.standing = []
    assert 'id="others"' not in console.ask(ANN, "GET", preview).text


def overview_beside(number: str, kind: str, teams: list[str], **fields: Any) -> ActionOverview:
    """An action of bob's that runs, with the filter that Ann asks for unless another one is given."""
    action = msgspec.structs.replace(Action(kind, "bob", NOW_MS, [1], 3, filter=ASKED["filter"]), teams=teams, **fields)
    steps = [StepCounts(size) for size in action.ramp.steps] if action.ramp else []
    return overview_of(number * 8, teams, steps=steps)._replace(action=action)


def test_what_is_selected_on_another_page_comes_into_the_form(console: ActingConsole, kafka: Kafka) -> None:
    rows = {"name": ["1/orders.DLT/0/1", "orders.parked/0/9"], "q": "team:shop", "select": "rows"}
    chosen = console.ask(ANN, "POST", "/act", rows)
    assert chosen.status_code == 303
    shown = console.ask(ANN, "GET", chosen.headers["location"]).text
    assert "2 letters chosen" in shown
    assert shown.count('<input type="hidden" name="name"') == 2
    every = console.ask(ANN, "POST", "/act", {"name": ["1/orders.DLT/0/1"], "q": "team:shop", "select": "all"})
    assert "name=" not in every.headers["location"]
    assert console.ask(ANN, "POST", "/act", {"q": ""}).status_code == 400
    many = {"name": [f"orders.parked/0/{n}" for n in range(300)], "q": "", "select": "rows"}
    assert console.ask(ANN, "POST", "/act", many).text.count('<input type="hidden" name="name"') == 300


def test_a_held_action_says_why_and_what_each_step_has_come_to(console: ActingConsole) -> None:
    head = action_records.build_head_key(bytes.fromhex("00000000000000aa"))
    action = Action("retry", "ann", NOW_MS, [1, 0], 3, filter="team:shop", teams=["shop"], ramp=Ramp(0.9, [1, 2], 10, 20))
    hold = Order("<b>worker</b>", NOW_MS + 5, "step 1 of 2: too few recover")
    console.replica.control_records[0] = {head: action_records.encode(action), head + b"/held": action_records.encode(hold)}
    console.replica.control_records[1] = {head: action_records.encode(action)}
    console.replica.failed = {0: 1}
    told = console.ask(ANN, "GET", "/api/actions/00000000000000aa").json()
    assert (told["status"], told["can"]) == ("held", ["resume", "cancel"])
    assert [step["failed"] for step in told["ramp"]["steps"]] == [1, 0]
    page = console.ask(ANN, "GET", "/actions/00000000000000aa").text
    assert "&lt;b&gt;worker&lt;/b&gt;" in page
    assert "step 1 of 2: too few recover" in page
    assert re.findall(r'form="orders" formaction="/actions/00000000000000aa/(\w+)"', page) == ["resume", "cancel"]
    assert '"orders"' not in console.ask(Viewer("vic", {"shop": Role.VIEWER}), "GET", "/actions/00000000000000aa").text
    assert console.ask(EVE, "GET", "/actions/00000000000000aa").status_code == 404
    assert "00000000000000aa" in console.ask(ANN, "GET", "/actions").text
    assert "00000000000000aa" not in console.ask(EVE, "GET", "/actions").text
    assert console.ask(ANN, "GET", "/actions?after=00000000000000bb").status_code == 409


def test_an_action_says_what_became_of_its_letters_by_step_with_a_link_to_those_that_failed_again(
    console: ActingConsole, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = (SentOutcome(1, 0, 0), SentOutcome(1_813, 3, 12))
    outcome = ActionOutcome(SentOutcome(1_814, 3, 12), steps)
    monkeypatch.setattr(console.replica, "load_outcome", lambda _about: outcome)
    kafka.standing = [overview_beside("0a", "retry", ["shop"], members=2_000, ramp=Ramp(0.9, [1, 1_999], 10, 20))]
    page = console.ask(ANN, "GET", f"/actions/{'0a' * 8}").text
    told = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page[page.index('id="outcome">') :])).removeprefix('id="outcome">')
    assert told.startswith("1,799 recovered, 3 failed again, 12 not known yet, 186 not sent yet. Hold Cancel Why")
    assert f'<a href="/letters?q=failed-again%3A{"0a" * 8}">3 failed again</a>' in page
    cells = re.findall(r'<td class="n">([^<]*)</td>', page)
    assert cells[:5] == ["1", "0", "0", "0", "1"]
    assert cells[6:9] == ["1,798", "3", "12"]
    answered = console.ask(ANN, "GET", f"/api/actions/{'0a' * 8}").json()["outcome"]
    assert {**answered, "steps": answered["steps"][1]} == {
        "sent": 1_814, "failed_again": 3, "not_known_yet": 12, "recovered": 1_799,
        "steps": {"sent": 1_813, "failed_again": 3, "not_known_yet": 12, "recovered": 1_798},
    }  # fmt: skip
    # After a discard nothing is sent that might recover.
    kafka.standing = [overview_beside("0b", "discard", ["shop"])]
    assert "0 of 3</strong> done" in console.ask(ANN, "GET", f"/actions/{'0b' * 8}").text
    assert console.ask(ANN, "GET", f"/api/actions/{'0b' * 8}").json()["outcome"] is None


def test_every_page_shows_ramps_that_are_not_done_to_who_may_see_them(
    console: ActingConsole, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing_actions, "FRESH_S", 0)
    ramp = Ramp(0.9, [1, 2], 10, 20)
    kafka.standing = [
        overview_beside("0a", "retry", ["shop"], ramp=ramp),
        overview_beside("0b", "redirect", ["shop"], ramp=ramp)._replace(held=Order("w", 1)),
        overview_beside("0c", "retry", ["bank"], ramp=ramp),
        overview_beside("0d", "retry", ["shop"], ramp=ramp)._replace(left=[]),
        overview_beside("0e", "discard", ["shop"]),
    ]  # fmt: skip
    line = lambda html: html[html.index('<div id="ramps"') : html.index('<main id="main"')]  # noqa: E731
    for path in ("/letters", "/failures", "/audit", "/act", "/nowhere"):
        shown = line(console.ask(ANN, "GET", path).text)
        buttons = re.findall(r'formaction="/actions/(\w+)/(\w+)"', shown)
        assert buttons == [("0a" * 8, "hold"), ("0b" * 8, "resume")]
        assert "step 1 of 2. <strong>0 recovered, 0 failed again, 0 not known yet.</strong>" in shown
        assert "0c" * 8 not in shown
    looks = line(console.ask(Viewer("vic", {"shop": Role.VIEWER}), "GET", "/letters").text)
    assert ("0a" * 8 in looks, "<button" in looks) == (True, False)
    # The same goes to pages that are open already.
    fresh = console.console.live._parts["ramps"](ANN.sight(), "")
    assert ("0a" * 8 in fresh, "0c" * 8 in fresh) == (True, False)
    kafka.standing = []
    assert console.console.live._parts["ramps"](ANN.sight(), "").strip() == ""


def test_what_can_be_ordered_comes_and_goes_with_the_part_that_is_kept_fresh(console: ActingConsole) -> None:
    action_id, looks = "00000000000000ab", Viewer("vic", {"shop": Role.VIEWER})
    head = action_records.build_head_key(bytes.fromhex(action_id))
    action = Action("discard", "ann", NOW_MS, [3], 3, filter="team:shop", teams=["shop"])
    console.replica.control_records = [{head: action_records.encode(action)}]
    fresh = lambda viewer: console.console.live._parts["action"](viewer.sight(), action_id)  # noqa: E731
    orders = lambda html: re.findall(r'formaction="/actions/\w+/(\w+)"', html)  # noqa: E731
    assert orders(fresh(ANN)) == ["hold", "cancel"]
    assert orders(fresh(looks)) == []
    tally = action_records.tally_key(bytes.fromhex(action_id))
    console.replica.control_records = [{head: action_records.encode(action), tally: action_records.encode(Tally(3))}]
    assert orders(fresh(ANN)) == ["undo"]
    words = lambda html: re.sub(r"<[^>]+>", "", html)  # noqa: E731
    assert all("It can be undone until 2026-09-21 14:23:20 UTC" in words(fresh(each)) for each in (ANN, looks))
    console.now_ms += 600_001
    assert ("Undo" in fresh(ANN), "undone" in fresh(ANN)) == (False, False)


def test_each_letter_of_an_action_is_told_and_no_cell_is_a_formula(
    console: ActingConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    action_id = "00000000000000ac"
    head = action_records.build_head_key(bytes.fromhex(action_id))
    action = Action("redirect", "ann", NOW_MS, [2], 2, filter="team:shop", teams=["shop"])
    console.replica.control_records = [{head: action_records.encode(action)}]
    results = [
        MemberResult(NOW_MS, 1, AuditLetter("done", "orders.DLT/0/1", NOW_MS, None, "a", NOW_MS + 5, "=cmd|' /C calc'!A0")),
        MemberResult(None, 0, AuditLetter("not_yet", parked="@orders.parked/0/7")),
    ]
    monkeypatch.setattr(standing_actions, "load_shard_numbers", lambda _: None)
    for module in (action_pages, api):
        monkeypatch.setattr(module, "list_member_results", lambda *_: iter(results))
    answer = console.ask(ANN, "GET", f"/actions/{action_id}/members.csv")
    assert answer.headers["content-disposition"] == f'attachment; filename="action-{action_id}.csv"'
    head_row, one, two = csv.reader(answer.text.splitlines())
    assert head_row == list(MEMBER_COLUMNS)
    at = "2026-09-21T14:13:20.000+00:00"
    assert one == ["orders.DLT/0/1", "done", at, "1", at, "a", "2026-09-21T14:13:20.005+00:00", "'=cmd|' /C calc'!A0", "", ""]
    assert two == ["'@orders.parked/0/7", "not_yet", "", "0", *[""] * 6]
    told = [json.loads(line) for line in console.ask(ANN, "GET", f"/api/actions/{action_id}/members").text.splitlines()]
    # A program gets what it is.
    assert [(each["letter"], each["new_target"]) for each in told] == [
        ("orders.DLT/0/1", "=cmd|' /C calc'!A0"), ("@orders.parked/0/7", None),
    ]  # fmt: skip
    for path in (f"/actions/{action_id}/members.csv", f"/api/actions/{action_id}/members"):
        assert console.ask(EVE, "GET", path).status_code == 404


def test_the_form_says_how_many_wait_and_are_parked_and_asks_which_are_meant(console: ActingConsole, kafka: Kafka) -> None:
    shown = console.ask(ANN, "GET", "/act?q=team:shop").text
    assert "that wait: 0" in shown
    assert '<fieldset id="state">' not in console.ask(ANN, "GET", "/act?q=state:parked").text
    assert '<fieldset id="state">' not in console.ask(ANN, "GET", "/act?q=team:shop&name=1/a/0/1").text
    nothing = console.ask(ANN, "GET", "/act?selected=1")
    assert (nothing.status_code, "choose some letters first" in nothing.text) == (400, True)
    for state, words in (
        ("parked", "(team:shop or key:1) state:parked"), ("both", "(team:shop or key:1) (state:waiting or state:parked)"),
    ):
        begun = console.ask(ANN, "POST", "/act", {"kind": "retry", "q": "team:shop or key:1", "state": state})
        action_id = begun.headers["location"].rpartition("/")[2]
        assert console.ask(ANN, "GET", f"/api/actions/{action_id}").json()["filter"] == words


def test_right_after_a_start_its_page_is_there_though_the_replica_does_not_have_it_yet(
    console: ActingConsole, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    action_id = ask_actions(console)["id"]
    done = console.ask(ANN, "POST", f"/act/{action_id}/start", {"expect": "3"})
    page = console.ask(ANN, "GET", done.headers["location"])
    assert (page.status_code, "It was started" in page.text) == (200, True)
    assert console.ask(BOB, "GET", done.headers["location"]).status_code == 404
    kafka.standing = [overview_of(action_id, ["shop"])]
    assert "Retry of 3 letters" in console.ask(ANN, "GET", done.headers["location"]).text


def test_while_the_replica_is_built_nobody_acts_and_what_runs_can_be_held(
    console: ActingConsole, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    action_id = ask_actions(console)["id"]
    console.replica.state = Freshness("rebuilding", 0.25, None, 7)
    for path, body in (("/api/actions", ASKED), (f"/api/actions/{action_id}/start", {})):
        answer = console.ask(ANN, "POST", path, json=body)
        assert (answer.status_code, answer.json()["progress"], answer.headers["retry-after"]) == (503, 0.25, "2")
    assert kafka.started == []
    held: list[str] = []
    monkeypatch.setitem(overview.ORDERS, "hold", lambda _shards, about, *_: held.append(about.id.hex()))
    kafka.standing = [overview_of(action_id, ["shop"])]
    assert console.ask(ANN, "POST", f"/api/actions/{action_id}/hold", json={}).status_code == 202
    assert held == [action_id]
