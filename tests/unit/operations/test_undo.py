"""What an operator is told who undoes a discard too late."""

from __future__ import annotations

from retry.delay_queue.action_records import Action
from retry.operations.act.request import renew_action
from retry.operations.act.selection import select_letters
from retry.operations.act.start import UndoPlan

LETTERS = frozenset({"orders.DLT/0/1", "orders.DLT/0/2"})
UNDOES = "5f3a5f3a5f3a5f3a"


def test_letters_for_which_an_undo_comes_too_late_are_told_with_the_command_that_returns_them() -> None:
    undoing = UndoPlan(renew_action(Action("undo", "ann", 0, [], 0, undoes=UNDOES)), LETTERS, lambda _: True)
    told, _, command = undoing.too_late(1).partition(": retry act ")
    assert told == "1 of 2 letters: already discarded, or acted on since. To return those that are discarded"
    kind, *words = command.split()
    assert kind == "retry"
    assert select_letters(" ".join(words), (), 0).states == {"discarded"}
    assert f"header.retry-action:{UNDOES}" in words
    assert undoing.too_late(2) == ""
