"""The filter of a group means exactly its letters, whatever was merged and split: those that its count counts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retry.console.folding import notes
from retry.console.folding.letter_record import FoundFailure
from retry.console.folding.regrouping import CHANGE, SPLIT_BY, Change, Regrouping
from retry.console.reading import groups as reading_groups
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Entry
from retry.errors import FilterInvalid
from retry.operations.found_letter import FoundLetter, make_parked_letter, make_waiting_letter
from retry.operations.letter_filter import predicate
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.syntax import Term
from retry.policies.registry import Registry
from retry.record import Headers
from tests.support.replicas import NOW_MS, OWN, GivenMessage, GivenReplica

LETTERS = 24


def headers_of(n: int) -> Headers:
    """Make headers of three kinds, three attempts, two consumer groups, two stacks."""
    stack = f"a.E{n % 3}: no\n\tat com.acme.Stage{n % 2}.handle(Stage.java:{n})\n".encode()
    return [
        ("kafka_dlt-exception-fqcn", b"a.E%d" % (n % 3)), ("kafka_dlt-exception-message", b"order %d" % n),
        ("kafka_dlt-exception-stacktrace", stack), ("kafka_dlt-original-consumer-group", b"g%d" % (n // 3 % 2)),
        ("retry-attempt", b"%d" % (n % 4)), ("retry-id", b"%016x" % n), ("retry-policy", b"payments/orders.DLT"),
    ]  # fmt: skip


def fold_letters(replica: GivenReplica) -> list[FoundLetter]:
    found = []
    for n in range(LETTERS):
        if n % 5:
            lane = entry_keys.lane("payments", "orders.DLT", "orders.retry")
            key = entry_keys.build_key(NOW_MS + n, entry_keys.build_key_stem("orders.DLT", 0), n, lane)
            envelope = envelopes.encode(Entry("orders.retry", b"k", b"v", headers_of(n), NOW_MS, "payments", NOW_MS))
            replica.fold(OWN.changelog, (key, envelope))
            found.append(make_waiting_letter(entry_keys.read_source(key), envelopes.decode(envelope), Registry(), ""))
        else:
            (at,) = replica.fold(OWN.parked, (b"k", b"v", headers_of(n)))
            found.append(make_parked_letter(GivenMessage(OWN.parked, 0, at, b"k", b"v", headers_of(n), NOW_MS), Registry()))
    replica.finish()
    return found


def change(replica: GivenReplica, n: int, made: Change | None) -> None:
    value = None if made is None else notes.encode_note(made)
    replica.fold(OWN.notes, (f"{CHANGE}{n}".encode(), value))


def select_names(replica: GivenReplica, letters: list[FoundLetter], text: str) -> set[str]:
    """Letters by SQL, and the same by the predicate that actions choose them with."""
    asked = parse(text, groups=True)
    with replica.readers.reading(0.0) as connection:
        grouping = Regrouping.read_notes(connection)

    def in_group(_field: str, group: str) -> predicate.Predicate:
        is_in = grouping.in_group(group)
        return lambda letter: is_in(FoundFailure(letter))

    holds = predicate.build_predicate(asked, NOW_MS, in_group)
    names = set(replica.names(asked))
    assert names == {letter.name for letter in letters if holds(letter)}, text
    return names


CHANGES = st.lists(st.tuples(st.sampled_from(["merge", "split", "undo"]), st.integers(0, 99), st.integers(0, 99)), max_size=8)


@settings(deadline=None)
@given(CHANGES)
# What was merged into a part of a split that was undone.
@example([("split", 0, 0), ("merge", 2, 0), ("undo", 1, 0)])
# And of a whole that was split once more.
@example([("split", 0, 0), ("merge", 0, 2), ("undo", 1, 0), ("split", 0, 0)])
@example([("split", 0, 0), ("merge", 0, 1), ("undo", 1, 0), ("split", 0, 0)])
def test_a_groups_filter_means_as_many_letters_as_it_counts(changes: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        replica = GivenReplica(Path(folder))
        letters = fold_letters(replica)
        seen: set[str] = set()
        for n, (what, first, second) in enumerate([("undo", 0, 0), *changes]):
            groups = sorted(group.id for group in replica.groups())
            one, other = groups[first % len(groups)] if groups else "", groups[second % len(groups)] if groups else ""
            if what == "merge" and one != other:
                change(replica, n, Change((one,), "ann", n, into=other))
            elif what == "split":
                change(replica, n, Change((one,), "ann", n, by_what=SPLIT_BY[second % len(SPLIT_BY)]))
            elif what == "undo" and n:
                change(replica, first % n, None)
            shown = {group.id: group.count for group in replica.groups()}
            found = {group: select_names(replica, letters, f"group:{group}") for group in shown}
            assert {group: len(names) for group, names in found.items()} == shown
            assert sum(shown.values()) == LETTERS == len(set().union(*found.values()))
            seen |= shown.keys()
            # A link that somebody kept means what its page shows.
            for group in seen:
                with replica.readers.reading(0.0) as connection:
                    page = reading_groups.find_group(connection, None, group, NOW_MS)
                assert len(select_names(replica, letters, f"group:{group}")) == (page.count if page else 0)
                assert len(select_names(replica, letters, f"-group:{group}")) == LETTERS - (page.count if page else 0)
        replica.file.close()


@pytest.mark.parametrize("text", ["group:f00d", "-(team:a or group:f00d)"])
def test_who_has_no_notes_refuses_to_ask_for_a_group(text: str) -> None:
    with pytest.raises(FilterInvalid, match=r"column \d+: what operators merged and split is known in the console alone"):
        parse(text)
    with pytest.raises(FilterInvalid, match="only the console knows"):
        predicate.build_predicate(parse(text, groups=True), NOW_MS)


def test_a_group_is_named_whole() -> None:
    asked = parse("group:f00d~1a2b", groups=True)
    assert isinstance(asked, Term) and str(asked) == "group:f00d~1a2b"
    with pytest.raises(FilterInvalid, match="without"):
        parse("group:f00d*", groups=True)
