"""What operators write beside letters: owner, note and link of a kind of failures, merges, splits, resolutions, saved filters."""

from __future__ import annotations

from collections.abc import Collection

from retry.console.replica.rows import SavedFilter, Scope


class Notes:
    """Writes to `<app>-notes`; what this process has written it shows at once.

    Every method that writes returns when Kafka has acknowledged it, and raises RecordUnwritten where it has not.
    """

    def set_note(self, group: str, *, owner: str, note: str, link: str, by: str) -> None:
        """Say whose a kind of failures is, what is known of it, and where it is tracked; all empty removes the note."""
        raise NotImplementedError

    def merge(self, groups: Collection[str], into: str, by: str) -> str:
        """Count kinds of failures as another one, also later ones; returns an id for `undo`."""
        raise NotImplementedError

    def split(self, group: str, by_what: str, by: str) -> str:
        """Make kinds of their own of a group's letters: by `frames`, `topic`, `consumer-group` or `attempt`; see `undo`."""
        raise NotImplementedError

    def undo(self, change: str, by: str) -> bool:
        """Take back a merge or a split; False where there is none of this id."""
        raise NotImplementedError

    def changes(self, group: str) -> list[tuple[str, str, str, int]]:
        """Merges and splits that stand for a group: id, what it is in words, by whom, when."""
        raise NotImplementedError

    def resolve(self, group: str, by: str) -> None:
        """Nothing is to be done about it; a letter that fails later opens it again."""
        raise NotImplementedError

    def reopen(self, group: str, by: str) -> None:
        """Something is to be done about it after all."""
        raise NotImplementedError

    def save_filter(self, name: str, text: str, team: str, by: str) -> None:
        """Keep a filter for a team; an empty team is everybody. The text is parsed first.

        Raises:
          FilterInvalid: it is none.
        """
        raise NotImplementedError

    def delete_filter(self, name: str, team: str, by: str) -> None:
        """Keep it no more."""
        raise NotImplementedError

    def filters(self, scope: Scope) -> list[SavedFilter]:
        """The filters that a viewer may use, by name."""
        raise NotImplementedError
