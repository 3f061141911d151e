"""The files that hold the URLs of targets: secrets, which are read when something is sent and stand in no message."""

from __future__ import annotations

import re
from pathlib import Path

from retry.errors import NotificationFailed
from retry.printable import escape_unprintable

_SECRET_CHARS_MIN = 5
_REASON_CHARS_MAX = 300


def read_url(file: Path) -> str:
    """Read the one line of a file that holds a URL; raises NotificationFailed, which does not repeat it, where there is none."""
    try:
        lines = [line.strip() for line in file.read_text().splitlines() if line.strip() and not line.startswith("#")]
    except OSError as error:
        raise NotificationFailed(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise NotificationFailed(f"{file} is not UTF-8 text; is it the right file?") from None
    if len(lines) != 1 or "://" not in lines[0]:
        raise NotificationFailed(f"{file} does not hold one line with one URL")
    return lines[0]


def hide_parts(text: str, url: str) -> str:
    """Return text in one line without any part of a URL that may be a secret: all but its scheme and short words.

    >>> hide_parts("Failed: /services/T0001/B0002 said 404", "slack://T0001/B0002/c")
    'Failed: /services/***/*** said 404'
    """
    scheme, _, rest = url.partition("://")
    parts = {part for part in re.split(r"[/?&=:@#%,+;\s]+", rest) if len(part) >= _SECRET_CHARS_MIN}
    for part in sorted(parts, key=len, reverse=True):
        if part != scheme:
            text = text.replace(part, "***")
    return escape_unprintable(text, _REASON_CHARS_MAX)
