"""What is erased, and what is said of all that stays: each place, until when, and never the key itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.delay_queue import action_records, envelopes
from retry.delay_queue.action_records import Action, Member, Patch
from retry.delay_queue.entry_keys import Source
from retry.delay_queue.envelopes import Entry
from retry.delivery.act import ENDED_MS
from retry.errors import ActionRefused, RightMissing
from retry.kafka import topics
from retry.kafka.topics import Described
from retry.operations.act.audit import Audit, AuditRecord
from retry.operations.act.erase import Erasing, Remnant, RestingRecords, find_remnants, list_compacted
from retry.operations.found_letter import make_parked_letter, make_waiting_letter
from retry.policies.registry import Registry
from retry.record import CREATE_TIME, Headers, Record
from retry.settings import Settings

KEY, NOW_MS, DAY_MS = b"person-17", 1_795_300_000_000, 86_400_000
OWN = topics.build_topic_names("app")
KEPT = {"cleanup.policy": "delete", "retention.ms": str(30 * DAY_MS)}
ACTION = b"\x0c" * action_records.ACTION_BYTES


def rests(
    offset: int, at_ms: int = NOW_MS, key: bytes | None = KEY, topic: str = "app-parked", source: bytes = b"orders.DLT/0/7",
    value: bytes | None = b"v", headers: Headers | None = None,
) -> Any:  # fmt: skip
    ours: Headers = [("retry-source", source), ("retry-id", b"7")] if headers is None else headers
    return make_parked_letter(Record((topic, 1, offset), key, value, ours, (CREATE_TIME, at_ms)), Registry())


def test_letters_with_the_key_are_meant_and_records_that_rest_are_counted() -> None:
    erasing = Erasing(KEY)
    entry = Entry("orders.retry", KEY, b"v", [], NOW_MS, "orders")
    wait = make_waiting_letter(Source(NOW_MS, "orders.DLT", 0, 7), entry, Registry(), "")
    assert erasing.matches(wait)
    assert [erasing.matches(rests(n, at)) for n, at in ((1, NOW_MS), (2, NOW_MS + 5), (3, NOW_MS - 5))] == [True] * 3
    others = [rests(4, key=None), rests(5, key=b"person-1"), rests(6, key=b"")]
    assert not any(map(erasing.matches, others))
    assert erasing.resting == {("app-parked", 1): RestingRecords(3, NOW_MS + 5)}


def test_of_one_topic_only_its_letters_are_meant() -> None:
    erasing = Erasing(KEY, "orders.DLT")
    assert erasing.matches(rests(1))
    assert not erasing.matches(rests(2, source=b"others.DLT/0/7"))
    assert erasing.resting == {("app-parked", 1): RestingRecords(1, NOW_MS)}


def test_a_null_that_has_compaction_remove_them_is_no_letter() -> None:
    erasing = Erasing(KEY)
    assert not erasing.matches(rests(1, value=None, headers=[]))
    assert erasing.matches(rests(2, value=None))
    assert erasing.resting == {("app-parked", 1): RestingRecords(1, NOW_MS)}


@pytest.mark.parametrize(("text", "named"), [
    ("key:person-17", True), ("about person-17.", True), ("person-171", False), ("a-person-17", False),
    ("person-17-b", False), ("", False),
])  # fmt: skip
def test_a_text_names_the_key_as_a_word(text: str, named: bool) -> None:
    assert Erasing(KEY).is_key_in(text) is named


@given(st.binary(), st.text())
def test_no_key_is_too_strange_to_be_looked_for(key: bytes, text: str) -> None:
    assert Erasing(key).is_key_in(text) in (True, False)
    if key and text == key.decode(errors="replace") and "\ufffd" not in text:
        assert Erasing(key).is_key_in(text)


def test_the_action_does_not_name_the_key_and_neither_may_its_reason() -> None:
    request = Erasing(KEY, "orders.DLT").request("ann", "3 May", "digest")
    assert (request.action.kind, request.action.filter) == ("erase", "one record key of topic orders.DLT")
    assert KEY not in action_records.encode(request.action)
    with pytest.raises(ActionRefused, match="the reason names the key"):
        Erasing(KEY).request("ann", "person-17 wrote", "digest")


def list_remnants(
    monkeypatch: pytest.MonkeyPatch, erasing: Erasing, config: dict[str, dict[str, str]] | None = None,
    standing: list[dict[bytes, bytes]] | None = None, audited: list[AuditRecord] | None = None,
) -> list[Remnant]:  # fmt: skip
    """List what is said of what stays, on brokers that have these configurations and records."""
    configs = {OWN.changelog: {"max.compaction.lag.ms": str(DAY_MS)}, OWN.lineage: KEPT, OWN.audit: KEPT} | (config or {})
    described = {topic: Described("id", 1, of) for topic, of in configs.items()}
    monkeypatch.setattr(topics, "describe", lambda _admin, wanted: {topic: described[topic] for topic in wanted})
    monkeypatch.setattr(Audit, "read_records", lambda *_: iter(audited or []))
    shards = SimpleNamespace(admin=None, list_records=lambda *_: standing or [{}])
    return find_remnants(Settings(app_id="app"), shards, erasing, NOW_MS)  # type: ignore[arg-type]


def test_what_was_there_stays_until_compaction_and_hashes_until_their_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    changelog, lineage = list_remnants(monkeypatch, Erasing(KEY))
    assert (changelog.where, changelog.until_ms) == ("app-changelog", NOW_MS + DAY_MS)
    assert (lineage.where, lineage.until_ms) == ("app-lineage", NOW_MS + 30 * DAY_MS)
    never = {OWN.changelog: {"max.compaction.lag.ms": "9223372036854775807"}}
    [unbounded, _] = list_remnants(monkeypatch, Erasing(KEY), never)
    assert ("max.compaction.lag.ms" in unbounded.what, unbounded.until_ms) == (True, None)


@pytest.mark.parametrize(
    ("config", "until_ms", "words"),
    [
        (KEPT, NOW_MS + 30 * DAY_MS, "2 records"),
        ({"cleanup.policy": "delete", "retention.ms": "-1"}, None, "kept for ever"),
        ({"cleanup.policy": "compact"}, None, "behind a null"),
        ({"cleanup.policy": "compact,delete", "retention.ms": "5"}, NOW_MS + 5, "behind a null"),
    ],
)
def test_records_that_rest_are_told_with_their_newest_and_its_end(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, str], until_ms: int | None, words: str
) -> None:
    erasing = Erasing(KEY)
    for n in range(2):
        erasing.matches(rests(n, NOW_MS - n))
    first = list_remnants(monkeypatch, erasing, {"app-parked": config})[0]
    assert (first.where, first.newest_ms, first.until_ms) == ("app-parked/1", NOW_MS, until_ms)
    assert words in first.what
    wants_null = [("app-parked", 1)] if "compact" in config["cleanup.policy"] else []
    assert list_compacted(SimpleNamespace(admin=None), erasing) == wants_null  # type: ignore[arg-type]


def test_a_configuration_that_may_not_be_seen_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RightMissing):
        list_remnants(monkeypatch, Erasing(KEY), {OWN.audit: {}})


def test_actions_and_edits_and_audits_that_name_it_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    by_filter = Action("retry", "ann", NOW_MS, [1], 1, filter="key:person-17")
    by_patch = Action("patch", "ann", NOW_MS + 1, [1], 1, patch=Patch({"who": "person-17"}))
    other = Action("retry", "ann", NOW_MS, [1], 1, filter="key:person-171")
    asked = enumerate((by_filter, by_patch, other))
    heads = {action_records.build_head_key(bytes([n]) * 8): action_records.encode(each) for n, each in asked}
    edit = Member(b"k", 1, b"d", envelopes.encode(Entry("orders.retry", KEY, b"v", [], None, "orders")))
    mistake = Member(b"k", 1, b"d", b"\xc1" + KEY)
    edits = enumerate((edit, mistake))
    slices = {action_records.build_slice_key(ACTION, 0, n): action_records.encode_slice([each], NOW_MS) for n, each in edits}
    told_ = AuditRecord("0a", "park", "ann", NOW_MS - 7, 0, [], "person-17 asked")
    silent = AuditRecord("0b", "park", "ann", NOW_MS, 0, [], "mended")
    _, _, *rest = list_remnants(monkeypatch, Erasing(KEY), standing=[heads | slices, heads], audited=[told_, silent])
    assert [(each.where, each.until_ms) for each in rest] == [
        (f"action {ACTION.hex()}", None),
        (f"action {'00' * 8}", NOW_MS + ENDED_MS),
        (f"action {'01' * 8}", NOW_MS + 1 + ENDED_MS),
        ("app-audit", NOW_MS - 7 + 30 * DAY_MS),
    ]  # fmt: skip
    assert f"retry actions cancel {ACTION.hex()}" in rest[0].what
    assert KEY.decode() not in "".join(each.what + each.where for each in rest)
