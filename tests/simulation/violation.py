"""What a broken promise is raised as."""

from __future__ import annotations


class Violation(BaseException):
    """A promise was broken; nothing in the product may catch it."""


def want(holds: bool, problem: str, about: str) -> None:
    """Hold it against what is promised.

    Raises:
      Violation: it does not hold.
    """
    if not holds:
        raise Violation(f"{problem}: {about}")
