"""The tree that `retry.errors` draws is the tree that it has."""

from __future__ import annotations

import inspect
import re

import pytest

from retry import errors
from retry.errors import RetryError

CLASSES = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, RetryError)]
_BRANCH = re.compile(r"^(?P<stem>[│ ]*)(?:├── |└── )(?P<name>\w+) +(?P<then>\S.*)$")


def read_drawn_tree() -> dict[str, str]:
    """Class to parent, as in the docstring."""
    found, path = {}, ["RetryError"]
    for line in inspect.cleandoc(errors.__doc__ or "").splitlines():
        if branch := _BRANCH.match(line):
            depth = len(branch["stem"]) // 4 + 1
            path = [*path[:depth], branch["name"]]
            found[branch["name"]] = path[depth - 1]
    return found


def test_the_drawing_is_the_tree() -> None:
    assert read_drawn_tree() == {each.__name__: each.__bases__[0].__name__ for each in CLASSES if each is not RetryError}


@pytest.mark.parametrize("error", CLASSES)
def test_each_says_in_one_sentence_what_happened(error: type[RetryError]) -> None:
    said = inspect.getdoc(error) or ""
    assert re.fullmatch(r"[A-Z][^\n]*[^.\n]\.", said)
    assert ". " not in said


@pytest.mark.parametrize(
    ("error", "data"),
    [
        (errors.SettingsInvalid("RETRY_SHARDS", "too many"), ["RETRY_SHARDS", "too many"]),
        (errors.PolicyFileInvalid("p.yaml", 7, "teams.a", "is wrong"), ["p.yaml:7", "teams.a", "is wrong"]),
        (errors.TopicsInvalid(["a is missing", "b is wrong"], "do this"), ["a is missing", "b is wrong", "do this"]),
        (errors.DataDirInUse("/data", "42"), ["/data", "42", "RETRY_DATA_DIR"]),
        *((each("told"), ["told"]) for each in CLASSES if "__init__" not in vars(each)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_message_has_the_datum_to_act_on(error: RetryError, data: list[str]) -> None:
    assert all(datum in str(error) for datum in data)
