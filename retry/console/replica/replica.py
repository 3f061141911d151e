"""The replica as pages ask it: one thread folds topics into SQLite, any thread reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from retry.console.replica.notes import Notes
from retry.console.replica.payloads import Payloads
from retry.console.replica.rows import (
    AuditRow,
    Freshness,
    Group,
    LetterRow,
    LineageEvent,
    Names,
    Now,
    Page,
    Scope,
    Split,
)  # fmt: skip
from retry.operations.letter_filter.syntax import Filter
from retry.policies.registry import Registry
from retry.settings import Settings


class Replica:
    """Safe to be asked from any thread: each has a connection of its own, which only reads.

    Args:
      registry: gives the newest registry of the policy file.
      path: of the SQLite file, whose folder exists; what it holds is deleted where it is of no use.

    Every question but `freshness` raises RebuildInProgress while the replica is built. Pages raise CursorStale where a cursor
    is of another page or another replica.
    """

    def __init__(self, settings: Settings, registry: Callable[[], Registry], path: Path) -> None:
        raise NotImplementedError

    @property
    def notes(self) -> Notes:
        """What operators write beside letters."""
        raise NotImplementedError

    @property
    def payloads(self) -> Payloads:
        """Reads payloads from Kafka."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin to follow the topics, in a thread; returns at once, whether brokers answer or not."""

    def close(self) -> None:
        """Stop, and let go of the clients and the file."""

    def freshness(self) -> Freshness:
        """How old the data is; never raises."""
        raise NotImplementedError

    def generation(self) -> int:
        """A number that grows whenever something that pages show has changed."""
        raise NotImplementedError

    def now(self, scope: Scope) -> Now:
        """What there is to be seen now."""
        raise NotImplementedError

    def groups(
        self, scope: Scope, meant: Filter, after: str | None = None, limit: int = 50, *, resolved: bool = False
    ) -> Page[Group]:
        """Kinds of failures, most letters first. Of letters, only those that `meant` means are counted.

        Args:
          resolved: whether those are listed that are resolved, and no others.

        Raises:
          FilterInvalid: it asks for payloads.
        """
        raise NotImplementedError

    def group(self, scope: Scope, group_id: str) -> Group | None:
        """One kind of failures; also one that was merged into it is a name for it."""
        raise NotImplementedError

    def splits(self, scope: Scope, group_id: str) -> list[Split]:
        """What letters of a group have in common: by top frames, topic, consumer group and attempt."""
        raise NotImplementedError

    def letters(self, scope: Scope, meant: Filter, after: str | None = None, limit: int = 100) -> Page[LetterRow]:
        """Letters, soonest first, then those that rest, newest first.

        Raises:
          FilterInvalid: it asks for payloads; see `retry.console.replica.payloads`.
        """
        raise NotImplementedError

    def letter(self, scope: Scope, name: str) -> LetterRow | None:
        """The letter of a name; None where it waits or rests no more, or is another team's."""
        raise NotImplementedError

    def lineage(self, scope: Scope, lineage: str) -> list[LineageEvent]:
        """What happened to one original record, the oldest first."""
        raise NotImplementedError

    def names(self, scope: Scope) -> Names:
        """What there is to complete a filter with."""
        raise NotImplementedError

    def named_entries(
        self, scope: Scope, kind: str, text: str = "", after: str | None = None, limit: int = 100
    ) -> Page[LetterRow]:
        """Schedules, tasks or timers that wait, soonest first; `text` is looked for in key, target and topic."""
        raise NotImplementedError

    def audit(self, scope: Scope, after: str | None = None, limit: int = 100, *, action: str = "") -> Page[AuditRow]:
        """What was done, newest first; of one action, or of all. A viewer of some teams sees what concerns their letters."""
        raise NotImplementedError

    def controls(self) -> list[Mapping[bytes, bytes]]:
        """Pauses and actions, as `action_state.states` and `control_records.pauses` read them: by shard."""
        raise NotImplementedError
