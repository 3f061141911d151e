"""Which exceptions the metrics page tells apart: a letter may say anything, and a page has to stay small."""

from __future__ import annotations

from collections import Counter

OTHERS, NONE = "(others)", "(none)"
# Of one team, and of all together.
_NAMED, _NAMED_MAX = 20, 1_000
_NAME_CHARS_MAX = 200


class Exceptions:
    """Label values of exceptions: the first 20 of a team by their names, and `(others)`.

    Those that are frequent come first, so they are named. Whatever calls itself like a label of ours is among the others, so
    a name is always that of one exception.
    """

    def __init__(self) -> None:
        self._named: set[tuple[str, str]] = set()
        self._of_team: Counter[str] = Counter()

    def label(self, team: str, exception: str | None) -> str:
        """The label value of an exception.

        >>> [Exceptions().label("a", name) for name in ("java.io.IOException", None, "(none)")]
        ['java.io.IOException', '(none)', '(others)']
        """
        if exception is None:
            return NONE
        if (team, exception) in self._named:
            return exception
        is_name = exception not in (NONE, OTHERS) and len(exception) <= _NAME_CHARS_MAX and exception.isprintable()
        if not is_name or self._of_team[team] >= _NAMED or len(self._named) >= _NAMED_MAX:
            return OTHERS
        self._named.add((team, exception))
        self._of_team[team] += 1
        return exception
