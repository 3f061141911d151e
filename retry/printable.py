"""Text that others chose → text that commands no terminal: what is not printable is shown as its escape.

Names, reasons and headers of records may hold escape sequences that clear a screen or write to a clipboard, line breaks that make
a line of their own, and characters that turn round what stands beside them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

_LINE_CHARS_MAX = 10_000


def escape_unprintable(text: str, most: int = _LINE_CHARS_MAX) -> str:
    """Escape unprintable characters so that a text has one line, and leave out its middle beyond about `most` characters.

    The end of a class's name tells more than its beginning.

    >>> print(escape_unprintable("a\\x1b[2Jb\\u202ec\\nd"), escape_unprintable("x" * 9, 5))
    a\\x1b[2Jb\\u202ec\\nd xx…xx
    """
    if len(text) > most:
        half = (most - 1) // 2
        text = f"{text[: most - 1 - half]}…{text[-half:]}"
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def escape_lines(text: str) -> str:
    """Escape unprintable characters in each line of a text, which keeps its line breaks.

    >>> print(escape_lines("a\\x1b\\nb"))
    a\\x1b
    b
    """
    return "\n".join(escape_unprintable(line) for line in text.split("\n"))


def escape_json(encoded: str) -> str:
    """Escape unprintable characters in JSON, which still reads the same; it may have line breaks between its parts.

    >>> print(escape_json('{"é": "\\u202e\\x7f"}'))
    {"é": "\\u202e\\u007f"}
    """
    if encoded.isprintable():
        return encoded
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in encoded)


def is_text(given: str) -> bool:
    """Whether what the system gave is UTF-8: it holds none of the surrogates that stand for bytes which are not.

    >>> is_text("é"), is_text("\\udcff")
    (True, False)
    """
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True


def align_rows(rows: Sequence[Sequence[str]], *, names: int) -> list[str]:
    """Lay out rows as a table for a terminal, a line each: columns of equal width, two spaces between them.

    The first `names` columns are set to the left, the numbers after them to the right.

    >>> align_rows([("team", "letters"), ("shop", "12")], names=1)
    ['team  letters', 'shop       12']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if column < names else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
