"""What operators decided of letters is told on the outcomes topic, in the transaction that does it, and as it was done."""

from __future__ import annotations

from collections.abc import Sequence

from retry.delay_queue import entry_keys
from retry.telemetry import outcomes
from retry.telemetry.outcomes import Outcome
from retry.testing.kafka import MemoryRecord
from tests.simulation.identity import Identities
from tests.simulation.keys import OBSERVER
from tests.simulation.violation import want


def of_actions(records: Sequence[MemoryRecord], topic: str) -> list[Outcome]:
    """List what these records tell of actions, a letter each."""
    told = (letter for record in records if record.topic() == topic for letter in outcomes.read(record.value() or b""))
    return [letter for letter in told if letter["action"] is not None]


def check(told: Sequence[Outcome], changelog: Sequence[MemoryRecord], who: Identities) -> None:
    """Each entry that an action has put is told of, with its target and due time, and nothing else is."""
    entries = [r for r in changelog if entry_keys.FIRST_KEY <= (r.key() or b"") < entry_keys.END_KEY and r.value() is not None]
    by_letter = {who.of_entry(put.key() or b"", put.value() or b""): put for put in entries}
    letters = [who.of_outcome(each) for each in told]
    want(sorted(letters) == sorted(by_letter), "torn", f"{sorted(by_letter)} acted on, and told {told}")
    for letter, each in zip(letters, told, strict=True):
        key, value = by_letter[letter].key() or b"", by_letter[letter].value() or b""
        target, due_at_ms = OBSERVER.decode_to_show(key, value).destination, entry_keys.due_at_ms(key)
        want(each["target"] == target, "wrong", f"{each} goes to {target}")
        want(each["due_ms"] in (None, due_at_ms), "wrong", f"{each} is due at {due_at_ms}")
