"""Header names that a team's own code uses for what `Failure` has a word for."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import UnsetType

from retry.dead_letters.failure import FIELDS
from retry.policies.schema import Texts, convert_value
from retry.policies.yaml_document import Document, suggest_word

# Names of members of a JSON body, one in another.
_PATH = re.compile(r"\$(\.[A-Za-z0-9_-]{1,100}){1,8}")
AliasNames = dict[str, tuple[str, ...]]


def overlaid(document: Document, written: Mapping[str, object] | UnsetType, path: str, outer: AliasNames) -> AliasNames:
    """The aliases of the levels further out, with those written here instead, field by field.

    Raises:
      PolicyFileInvalid: a field is unknown, or its value is neither a header name nor a list of them.
    """
    aliases = dict(outer)
    for field, value in ({} if isinstance(written, UnsetType) else written).items():
        at = f"{path}.aliases.{field}"
        if field not in FIELDS:
            document.reject_path(at, f"is nothing that letters tell; known are {', '.join(FIELDS)}{suggest_word(field, FIELDS)}")
        names: str | list[str] = convert_value(document, value, Texts, at)
        aliases[field] = (names,) if isinstance(names, str) else tuple(names)
        for name in aliases[field]:
            if name.startswith("$") and (field != "attempts" or not _PATH.fullmatch(name)):
                document.reject_path(at, f"{name!r} is no path that is read; attempts alone may have one, like $.retryAttempt")
    return aliases
