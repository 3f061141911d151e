"""JSON merge patches as RFC 7396 has them, and what they leave as it was written."""

from __future__ import annotations

import pytest

from retry.delay_queue.action_records import Patch
from retry.delivery.letter_changes import find_patch_fault, merge_json

# The test cases of RFC 7396, appendix A.
EXAMPLES = [
    (b'{"a":"b"}', b'{"a":"c"}', b'{"a":"c"}'), (b'{"a":"b"}', b'{"b":"c"}', b'{"a":"b","b":"c"}'),
    (b'{"a":"b"}', b'{"a":null}', b"{}"), (b'{"a":"b","b":"c"}', b'{"a":null}', b'{"b":"c"}'),
    (b'{"a":["b"]}', b'{"a":"c"}', b'{"a":"c"}'), (b'{"a":"c"}', b'{"a":["b"]}', b'{"a":["b"]}'),
    (b'{"a":{"b":"c"}}', b'{"a":{"b":"d","c":null}}', b'{"a":{"b":"d"}}'),
    (b'{"a":[{"b":"c"}]}', b'{"a":[1]}', b'{"a":[1]}'), (b'["a","b"]', b'["c","d"]', b'["c","d"]'),
    (b'{"a":"b"}', b'["c"]', b'["c"]'), (b'{"a":"foo"}', b"null", b"null"), (b'{"a":"foo"}', b'"bar"', b'"bar"'),
    (b'{"e":null}', b'{"a":1}', b'{"e":null,"a":1}'), (b"[1,2]", b'{"a":"b","c":null}', b'{"a":"b"}'),
    (b"{}", b'{"a":{"bb":{"ccc":null}}}', b'{"a":{"bb":{}}}'),
]  # fmt: skip


@pytest.mark.parametrize(("value", "patch", "expected"), EXAMPLES)
def test_examples_of_rfc_7396(value: bytes, patch: bytes, expected: bytes) -> None:
    assert merge_json(value, patch) == expected


def test_what_is_not_named_stays_byte_for_byte() -> None:
    value = rb'{ "id": 123456789012345678901234567890, "price": 1.10, "deep": {"x": [1e400, "\u00e4"]} }'
    assert merge_json(value, b'{ "a" : null , "new" : 2.50 }') == (
        rb'{"id":123456789012345678901234567890,"price":1.10,"deep":{"x": [1e400, "\u00e4"]},"new":2.50}'
    )


@pytest.mark.parametrize(
    ("patch", "told"),
    [
        (Patch(), "changes nothing"), (Patch({"retry-attempt": "9"}), "retry-attempt"), (Patch(value="{"), "no JSON"),
        (Patch(value='{"a":' * 3_000 + "1" + "}" * 3_000), "no JSON"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_patch_is_told(patch: Patch, told: str) -> None:
    assert told in (find_patch_fault(patch) or "")


@pytest.mark.parametrize("patch", [Patch({"a": None}), Patch(value="null"), Patch(value='{"a":{"b":null}}')])
def test_of_a_patch_that_can_be_nothing_is_told(patch: Patch) -> None:
    assert find_patch_fault(patch) is None
