"""What a report says where all that it counts is there once, or twice: is the word beside each number its singular or plural?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_BETWEEN = "(?:more |more last |recovered |expected )?"
_ONE = ("letter", "retry", "recovery", "minute", "attempt", "advice", "rule", "is", "was")
_MANY = ("letters", "retries", "recoveries", "minutes", "attempts", "advices", "rules", "are", "were")


def each_counted(found: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Rows in which everything is so many; times, parts of one and what a delay is before which attempt stay."""
    return {name: value if name.endswith("_ms") else replace_number(value, number) for name, value in found.items()}


def replace_number(value: Any, number: int) -> Any:
    if isinstance(value, Mapping):
        return each_counted(value, number)
    if isinstance(value, list):
        return [replace_number(each, number) for each in value]
    return number if type(value) is int else value


def slips(text: str) -> list[str]:
    """List where one thing has the word for many, or many that for one."""
    return [
        *re.findall(rf"\b1 {_BETWEEN}(?:{'|'.join(_MANY)})\b.*", text),
        *re.findall(rf"\b(?:0|2|1?[03-9]+) {_BETWEEN}(?:{'|'.join(_ONE)})\b.*", text),
    ]
