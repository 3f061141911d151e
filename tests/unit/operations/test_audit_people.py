"""What people do in the console stands in the audit beside what workers do, in a form that every version of the command reads."""

from __future__ import annotations

import json
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest

from retry.cli.audit import _line
from retry.console.acting import audit_trail
from retry.console.acting.audit_trail import AuditTrail
from retry.errors import RecordUnwritten
from retry.operations.act import audit
from retry.operations.act.audit import AuditRecord, by_person
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
    value = by_person("reveal", "ann", "a look", AT_MS, ["orders.parked/0/9", f"{AT_MS}/orders.DLT/1/7"], {"shop", "bank"})
    told = json.loads(value)
    assert (told["v"], told["action"], told["shard"], told["teams"]) == (1, "", -1, ["bank", "shop"])
    record = audit._read(value, "app-audit/0/1")
    assert (record.kind, record.by, record.reason, record.at_ms) == ("reveal", "ann", "a look", AT_MS)
    assert [(each.parked, each.letter, each.due_ms, each.result) for each in record.letters] == [
        ("orders.parked/0/9", "", None, "done"), (None, "orders.DLT/1/7", AT_MS, "done"),
    ]  # fmt: skip
    assert _line(record) == (
        "2026-09-21T14:13:20.000+00:00  console           reveal by ann: a look orders.parked/0/9 orders.DLT/1/7"
    )


def test_what_an_earlier_version_wrote_or_reads_has_no_teams() -> None:
    class Earlier(msgspec.Struct, frozen=True):
        """As the release before has it."""

        action: str
        kind: str
        by: str
        at_ms: int
        shard: int
        letters: list[audit.AuditLetter]
        reason: str = ""

    assert msgspec.json.decode(by_person("pause", "ann", "", AT_MS, [], ["shop"]), type=Earlier).shard == -1
    earlier = msgspec.json.encode(Earlier("0a", "retry", "ann", AT_MS, 3, [], "why"))
    assert audit._read(earlier, "").teams == []
    assert _line(AuditRecord("0a", "retry", "ann", AT_MS, 3, [])).endswith("0a  retry by ann; shard 3: ")


def test_it_is_written_before_anything_is_shown_or_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records()
    AuditTrail(Settings(app_id="app"), records).reveal("ann", ["orders.parked/0/9"], ["shop"])  # type: ignore[arg-type]
    ((topic, partition, key, value),) = records.written
    assert (topic, partition, key) == ("app-audit", 0, b"console")
    assert audit._read(value, "").kind == "reveal"
    with pytest.raises(RecordUnwritten, match="refused"):
        AuditTrail(Settings(), Records(RecordUnwritten("refused"))).reveal("ann", [])  # type: ignore[arg-type]
    monkeypatch.setattr(audit_trail, "_WITHIN_S", 0.01)
    with pytest.raises(RecordUnwritten, match="it is not done"):
        AuditTrail(Settings(), Records(acknowledges=False)).write("pause", "ann", "")  # type: ignore[arg-type]
    AuditTrail(Settings()).close()
