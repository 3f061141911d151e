"""A file of keys is read, or refused with the line and never with the key."""

from __future__ import annotations

import pytest

from retry.errors import SettingsInvalid
from retry.sealing.key_file import KEY_BYTES, make_key_line, parse
from tests.support.sealed import NEW, OLD

SHORT = "AAAA"


def test_the_first_key_seals_and_all_of_them_open() -> None:
    keys = parse(f"# keys of the shop\n\n{NEW}\n  {OLD}  \n")
    assert keys.newest == "new"
    assert {key_id: len(key) for key_id, key in keys.by_id.items()} == {"new": KEY_BYTES, "old": KEY_BYTES}
    assert list(keys.by_id) == ["new", "old"]


def test_behind_plain_keys_open_and_nothing_is_sealed() -> None:
    assert parse(f"plain\n{NEW}\n{OLD}")._replace(newest="new") == parse(f"{NEW}\n{OLD}")
    assert parse(f"plain\n{NEW}").newest is None


def test_each_new_key_is_another_one() -> None:
    lines = {make_key_line("k") for _ in range(100)}
    assert len(lines) == 100
    assert parse(lines.pop()).newest == "k"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has no key"),
        ("# nothing", "has no key"),
        ("plain", "has no key"),
        (f"{NEW}\nplain", "key 2 does not begin with an id"),
        (NEW.partition(" ")[2], "key 1 does not begin with an id"),
        (f"{NEW}\n{NEW}", "two keys new"),
        (f"k {SHORT}", "key 1 is not 32 bytes"),
        ("k " + NEW.partition(" ")[2][:-2], "key 1 is not 32 bytes"),
        ("k", "key 1 is not 32 bytes"),
        ("k/1 " + NEW.partition(" ")[2], "key 1 does not begin with an id"),
        ("k" * 41 + " " + NEW.partition(" ")[2], "key 1 does not begin with an id"),
    ],
)
def test_what_is_no_key_is_refused_and_not_repeated(text: str, told: str) -> None:
    with pytest.raises(SettingsInvalid, match=told) as refused:
        parse(text)
    assert "RETRY_ENCRYPTION_KEYS" in str(refused.value)
    secret = NEW.partition(" ")[2]
    assert secret[:20] not in str(refused.value)
    assert SHORT not in str(refused.value)


def test_keys_are_not_shown() -> None:
    keys = parse(f"{NEW}\n{OLD}")
    assert repr(keys) == "Keys(newest='new', by_id={'new': '***', 'old': '***'})"
    assert str(keys.by_id["new"]) not in f"{keys} {keys!r}"
