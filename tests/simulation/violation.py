"""What a broken promise is raised as."""

from __future__ import annotations


class Violation(BaseException):
    """A promise was broken; nothing in the product may catch it."""


class SharedCoordinates(BaseException):
    """An action came upon the other of two letters with the same coordinates, at the very due time at which the one that it
    names had been: what nothing promises to tell apart. A run ends with it."""


def want(holds: bool, problem: str, about: str) -> None:
    """Hold it against what is promised.

    Raises:
      Violation: it does not hold.
    """
    if not holds:
        raise Violation(f"{problem}: {about}")
