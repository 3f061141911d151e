"""What people do in the console stands in the audit beside what workers do, in a form that every version of the command reads."""

from __future__ import annotations

import json
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest

from retry.cli.actions import _format_record
from retry.console.acting import audit as acting_audit
from retry.console.acting.audit import AuditTrail
from retry.delay_queue.action_records import Action, Order, Tally
from retry.errors import ActionRefused, RecordUnwritten
from retry.operations.act import audit, overview
from retry.operations.act.audit import AuditRecord, encode_person_act
from retry.operations.act.overview import ActionOverview
from retry.settings import Settings

AT_MS = 1_790_000_000_000


class Records:
    """Stands in for the producer."""

    def __init__(self, fault: Exception | None = None, *, acknowledges: bool = True) -> None:
        self.written: list[tuple[Any, ...]] = []
        self._fault, self._acknowledges = fault, acknowledges

    def write(self, *record: Any) -> Future[int]:
        self.written.append(record)
        done: Future[int] = Future()
        if self._fault:
            done.set_exception(self._fault)
        elif self._acknowledges:
            done.set_result(1)
        return done

    def close(self) -> None:
        pass


def test_it_is_read_as_what_workers_write_is() -> None:
    value = encode_person_act(
        "reveal", "ann", "a look", AT_MS, ["orders.parked/0/9", f"{AT_MS}/orders.DLT/1/7"], {"shop", "bank"}
    )
    told = json.loads(value)
    assert (told["v"], told["action"], told["shard"], told["teams"]) == (1, "", -1, ["bank", "shop"])
    record = audit.decode_audit(value)
    assert (record.kind, record.by, record.reason, record.at_ms) == ("reveal", "ann", "a look", AT_MS)
    assert [(each.parked, each.letter, each.due_ms, each.result) for each in record.letters] == [
        ("orders.parked/0/9", "", None, "done"), (None, "orders.DLT/1/7", AT_MS, "done"),
    ]  # fmt: skip
    assert _format_record(record) == (
        "2026-09-21T14:13:20.000+00:00  console           reveal by ann: a look orders.parked/0/9 orders.DLT/1/7"
    )


def test_what_an_earlier_version_wrote_or_reads_has_no_teams() -> None:
    class Earlier(msgspec.Struct, frozen=True):
        """The audit record as the release before has it."""

        action: str
        kind: str
        by: str
        at_ms: int
        shard: int
        letters: list[audit.AuditLetter]
        reason: str = ""

    assert msgspec.json.decode(encode_person_act("pause", "ann", "", AT_MS, [], ["shop"]), type=Earlier).shard == -1
    earlier = msgspec.json.encode(Earlier("0a", "retry", "ann", AT_MS, 3, [], "why"))
    assert audit.decode_audit(earlier).teams == []
    assert _format_record(AuditRecord("0a", "retry", "ann", AT_MS, 3, [])).endswith("0a  retry by ann; shard 3: ")


class Shards:
    """Remembers what was asked of them."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def now_ms(self) -> int:
        return AT_MS

    def put_control_record(self, *asked: Any) -> None:
        self.asked.append(asked)


@pytest.mark.parametrize("what", ["hold", "resume", "cancel"])
def test_an_order_is_in_the_audit_in_the_transaction_that_gives_it(what: str) -> None:
    action = Action("retry", "ann", AT_MS, [1], 3, teams=["shop"])
    about = ActionOverview(b"\x0a" * 8, action, Order("worker", AT_MS - 1), None, Tally(), [0], 0)
    shards = Shards()
    overview.ORDERS[what](shards, about, "bob", "the bank is away")  # type: ignore[operator]
    ((key, _, (audit_key, told)),) = shards.asked
    assert (key.startswith(b"\x10action/" + audit_key), audit_key) == (True, b"0a" * 8)
    record = audit.decode_audit(told)
    assert (record.kind, record.by, record.reason, record.shard) == (what, "bob", "the bank is away", -1)
    assert (record.action, record.teams, record.letters) == ("0a" * 8, ["shop"], [])
    assert _format_record(record).endswith(f"0a0a  {what} by bob: the bank is away")


def test_an_order_that_comes_too_late_is_none_and_the_audit_has_nothing_of_it() -> None:
    about = ActionOverview(b"\x0a" * 8, Action("retry", "ann", AT_MS, [1], 3), None, None, Tally(), [], 0)
    shards = Shards()
    for order in overview.ORDERS.values():
        with pytest.raises(ActionRefused, match="nothing of it is left"):
            order(shards, about, "bob", "")  # type: ignore[arg-type]
    with pytest.raises(ActionRefused, match="it is not held"):
        overview.resume(shards, about._replace(left=[0]), "bob", "")  # type: ignore[arg-type]
    assert shards.asked == []


def test_it_is_written_before_anything_is_shown_or_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records()
    AuditTrail(Settings(app_id="app"), records).reveal("ann", ["orders.parked/0/9"], ["shop"])  # type: ignore[arg-type]
    ((topic, partition, key, value),) = records.written
    assert (topic, partition, key) == ("app-audit", 0, b"console")
    assert audit.decode_audit(value).kind == "reveal"
    with pytest.raises(RecordUnwritten, match="refused"):
        AuditTrail(Settings(), Records(RecordUnwritten("refused"))).reveal("ann", [])  # type: ignore[arg-type]
    monkeypatch.setattr(acting_audit, "_WITHIN_S", 0.01)
    with pytest.raises(RecordUnwritten, match="it is not done"):
        AuditTrail(Settings(), Records(acknowledges=False)).write("pause", "ann", "")  # type: ignore[arg-type]
    AuditTrail(Settings()).close()
