"""Which header of a letter has the stack trace of its failure, whatever its framework calls it."""

from __future__ import annotations

import re

from retry.record import Headers

_STACK_HEADER = re.compile(r"(?:stack[-_.]?trace|traceback|[-_.]stack)$", re.IGNORECASE)


def is_stack_header(name: str) -> bool:
    return _STACK_HEADER.search(name) is not None


def find_stack_header(headers: Headers) -> tuple[str, bytes] | None:
    """Return name and value of the first header with a stack trace; None where there is none."""
    return next(((name, value) for name, value in headers if value and is_stack_header(name)), None)
