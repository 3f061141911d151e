"""Records of the audit → what was done for each team, with some of its letters."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence

import orjson

from retry.delivery.act_audit import DONE
from retry.kafka.interface import Message
from retry.operations.act.audit import AuditLetter, AuditRecord, decode_audit
from retry.policies.registry import Registry
from retry.telemetry.unreadable_records import UNREADABLE

_EXAMPLES = 20
_INSERT = (
    "INSERT INTO audit (at_ms, action, kind, by, reason, shard, team, letters, done, results, examples, place)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class AuditFold:
    """The fold of the audit topic into the tables `audit` and `audit_letters`; only for the thread that folds."""

    def __init__(self, connection: sqlite3.Connection, registry: Callable[[], Registry]) -> None:
        self._connection, self._registry = connection, registry

    def project_records(self, partition: int, messages: Sequence[Message]) -> None:
        """Take in the next records of a partition."""
        for message in messages:
            place = f"{message.topic()}/{partition}/{message.offset()}"
            try:
                record = decode_audit(message.value() or b"")
            except ValueError as error:
                UNREADABLE.pass_over(message.topic(), partition, message.offset(), error)
                continue
            for team, letters in self._by_team(record).items():
                self._put_record(record, team, letters, place)

    def _by_team(self, record: AuditRecord) -> dict[str | None, list[AuditLetter]]:
        registry = self._registry()
        found: dict[str | None, list[AuditLetter]] = {}
        for letter in record.letters:
            topic = (letter.letter or "").rpartition("/")[0].rpartition("/")[0]
            known = registry.route(topic).team if topic and registry.reads_topic(topic) else None
            found.setdefault(known if known is not None or len(record.teams) != 1 else record.teams[0], []).append(letter)
        teams: list[str | None] = [*record.teams] or [None]
        return found or {team: [] for team in teams}

    def _put_record(self, record: AuditRecord, team: str | None, letters: list[AuditLetter], place: str) -> None:
        results = Counter(letter.result for letter in letters)
        done = results.pop(DONE, 0)
        examples = [letter.letter or letter.parked or "" for letter in letters[:_EXAMPLES]]
        row = self._connection.execute(_INSERT, (
            record.at_ms, record.action, record.kind, record.by, record.reason, record.shard, team, len(letters), done,
            orjson.dumps(results).decode(), orjson.dumps(examples).decode(), place,
        )).lastrowid  # fmt: skip
        self._connection.executemany(
            "INSERT OR IGNORE INTO audit_letters VALUES (?, ?, ?)",
            ((name, row, letter.result) for letter in letters if (name := letter.letter or letter.parked)),
        )
