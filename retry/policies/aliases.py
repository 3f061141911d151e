"""Header names that a team's own code uses for what `Failure` has a word for."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UnsetType

from retry.dead_letters.failure import FIELDS
from retry.policies.yaml_document import Document, meant
from retry.policies.schema import Texts, shaped

Aliases = dict[str, tuple[str, ...]]


def overlaid(document: Document, written: Mapping[str, object] | UnsetType, path: str, outer: Aliases) -> Aliases:
    """The aliases of the levels further out, with those written here instead, field by field.

    Raises:
      PolicyFileInvalid: a field is unknown, or its value is neither a header name nor a list of them.
    """
    found = dict(outer)
    for field, value in ({} if isinstance(written, UnsetType) else written).items():
        at = f"{path}.aliases.{field}"
        if field not in FIELDS:
            document.refuse(at, f"is nothing that letters tell; known are {', '.join(FIELDS)}{meant(field, FIELDS)}")
        names: str | list[str] = shaped(document, value, Texts, at)
        found[field] = (names,) if isinstance(names, str) else tuple(names)
    return found
