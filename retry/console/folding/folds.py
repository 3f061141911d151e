"""Every topic's fold, over one connection; what they have folded is written together with how far they have come."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import orjson

from retry import clock
from retry.console.folding.attempts import Attempts, Settled
from retry.console.folding.letter_table import Cells, LetterTable
from retry.console.folding.letters_fold import ChangelogFold, RestingFold, ReturnedLetters
from retry.console.folding.notes import NotesFold
from retry.console.folding.outcomes_fold import OutcomesFold
from retry.console.folding.regrouping import Regrouping
from retry.delay_queue import returned_offsets
from retry.delivery.act_records import DONE
from retry.errors import TopicsInvalid
from retry.kafka import offset_ranges, topics
from retry.kafka.interface import AdminClient, Message, Partition
from retry.operations.act.audit import AuditLetter, AuditRecord, decode_audit
from retry.policies.registry import Registry
from retry.telemetry.unreadable_records import UNREADABLE

# The topics that the replica is a fold of, as the cluster has them, and from where on each is read.

# What happened before is not shown: outcomes are many, and only counts of them are kept for longer than a day.
_OUTCOMES_MS, _AUDIT_MS = 7 * 86_400_000, 365 * 86_400_000
# Of each partition, at most; a record tells of up to 500 letters.
_NEWEST_MAX = 50_000


class Sources(NamedTuple):
    """The topics that the replica is folded from; letters rest in those of `resting`."""

    own: topics.TopicNames
    described: dict[str, topics.Described]
    resting: frozenset[str]

    def identity(self, cluster_id: str, topic_prefix: str) -> dict[str, str]:
        """Return what identifies the source of a file: cluster, changelog, and topic ids. A topic made anew has another id."""
        ids = {f"{topic_prefix}{topic}": about.topic_id for topic, about in self.described.items()}
        return {"cluster": cluster_id, "changelog": self.own.changelog, **ids}

    def retention_ms(self) -> dict[str, int]:
        """Return how many ms Kafka keeps resting letters, by topic; without topics that keep them for ever."""
        kept = {topic: int(self.described[topic].config.get("retention.ms", -1)) for topic in self.resting}
        return {topic: ms for topic, ms in kept.items() if ms >= 0}

    def spans(self, admin: AdminClient) -> list[offset_ranges.Span]:
        now_ms, found = clock.wall_ms(), []
        for topic, about in self.described.items():
            if (kept_ms := {self.own.outcomes: _OUTCOMES_MS, self.own.audit: _AUDIT_MS}.get(topic)) is not None:
                recent = offset_ranges.find_spans_since(admin, topic, range(about.partitions), now_ms - kept_ms)
                found += [span._replace(start=max(span.start, span.stop - _NEWEST_MAX)) for span in recent]
            else:
                found += offset_ranges.find_readable_spans(admin, topic, range(about.partitions)).values()
        return found


def find_sources(admin: AdminClient, own: topics.TopicNames, registry: Registry) -> Sources:
    """Find the topics that are there; raises TopicsInvalid where the changelog is not. All others may be missing."""
    resting = own.list_resting(registry.parking())
    described = topics.describe(admin, {own.changelog, own.outcomes, own.audit, own.notes, *resting}, optional=True)
    if own.changelog not in described:
        raise TopicsInvalid([f"{own.changelog} is missing, or this user may not see it"], "retry topics create; retry acls")
    return Sources(own, described, frozenset(resting & described.keys()))


# Records of the audit → what was done for each team, with some of its letters.

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


_PRUNE_EVERY = 200
_Fold = ChangelogFold | RestingFold | OutcomesFold | NotesFold | AuditFold


class Folds:
    """The folds of all topics, over one connection that writes; only for the thread that folds.

    Args:
      is_live: whether all indexes are there.
    """

    def __init__(
        self, connection: sqlite3.Connection, sources: Sources, registry: Callable[[], Registry], *, is_live: bool
    ) -> None:
        self._connection, self._batches, self._is_bulk = connection, 0, False
        self.positions: dict[Partition, int] = {
            (topic, partition): offset for topic, partition, offset in connection.execute("SELECT * FROM positions")
        }
        connection.executemany("INSERT OR IGNORE INTO topics (name) VALUES (?)", ((topic,) for topic in sources.described))
        self._numbers: dict[str, int] = dict(connection.execute("SELECT name, number FROM topics"))
        own, grouping = sources.own, Regrouping.read_notes(connection)
        cells = self._cells = Cells(connection, grouping.group_of)
        letters = self._letters = LetterTable(connection, cells, is_indexed=is_live)
        hashes = {topic: returned_offsets.hash_topic_id(sources.described[topic].topic_id) for topic in sources.resting}
        returned = ReturnedLetters(connection, {hashes[topic]: self._numbers[topic] for topic in sources.resting})
        attempts, settled = Attempts(connection, is_live=is_live), Settled(connection)
        self._attempts, self._settled = attempts, settled
        changelog = ChangelogFold(
            connection, cells, letters, returned=returned, attempts=attempts, log=self._numbers[own.changelog],
            resting=sources.resting, registry=registry,
        )  # fmt: skip
        outcomes = OutcomesFold(connection, grouping, attempts, settled)
        self.resting = {
            topic: RestingFold(
                letters, returned, self._numbers[topic], hashes[topic], registry, is_discarded=topic == own.discarded
            )
            for topic in sources.resting
        }
        notes = NotesFold(connection, grouping, [cells.regroup, outcomes.regroup])
        self._prunes = [attempts.prune, lambda: settled.prune(clock.wall_ms()), outcomes.prune, cells.prune]
        self._of_topic: dict[str, _Fold] = {
            own.changelog: changelog, own.outcomes: outcomes, own.notes: notes,
            own.audit: AuditFold(connection, registry), **self.resting,
        }  # fmt: skip

    def project_partitions(self, of_partition: dict[Partition, list[Message]], next_offsets: dict[Partition, int]) -> None:
        """Take in records, and how far their partitions are read with them, in one transaction."""
        with nullcontext() if self._is_bulk else self._one_transaction():
            for (topic, partition), messages in of_partition.items():
                known = self.positions.get((topic, partition), 0)
                if fresh := [each for each in messages if (each.offset() or 0) >= known]:
                    self._of_topic[topic].project_records(partition, fresh)
            self._connection.executemany(
                "INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", ((*place, offset) for place, offset in next_offsets.items())
            )
        self.positions.update(next_offsets)

    @contextmanager
    def in_bulk(self) -> Iterator[None]:
        """Let all that is projected meanwhile be one transaction: what each costs beside its records is paid once."""
        with self._one_transaction():
            self._is_bulk = True
            try:
                yield
            finally:
                self._is_bulk = False

    @contextmanager
    def _one_transaction(self) -> Iterator[None]:
        with _writing(self._connection):
            yield
            self._letters.write_texts()
            self._cells.write()
            self._attempts.write()
            self._batches += 1
            if self._batches % _PRUNE_EVERY == 0:
                for prune in self._prunes:
                    prune()

    def drop_deleted(self, starts: dict[Partition, int]) -> None:
        with _writing(self._connection):
            for (topic, partition), first in starts.items():
                self.resting[topic].drop_before(partition, first)
            self._cells.write()

    def count_recoveries(self, now_ms: int) -> bool:
        """Count of which retries it is known by now whether they recovered; says whether there are more than before."""
        with _writing(self._connection):
            return self._settled.roll_up_slots(now_ms)

    def count_indexed(self) -> None:
        """Note that the indexes were built: keep them up to date from now on, and count what retries came to."""
        self._letters.note_indexed()
        with _writing(self._connection):
            self._attempts.count_indexed()
            self._settled.roll_up_slots(clock.wall_ms())


@contextmanager
def _writing(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction; undone where something goes wrong in it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
