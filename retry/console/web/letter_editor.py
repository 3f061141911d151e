"""The form of a letter's page in which its value is edited: what stands in it, and how it is looked at again."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from typing import NamedTuple

from starlette.requests import Request

from retry.console.rows import LetterRow
from retry.console.web.app import console_of, session_of, viewer_of
from retry.console.web.masks import REFUSED_EDIT, MaskedParts
from retry.console.web.rights import Role
from retry.console.web.value_editor import EditedValue, ValueEditor, ValueInvalid
from retry.operations.found_letter import FoundLetter
from retry.scheduling.tasks.framed_values import DecodedValue

_MARK_BYTES = 16


class OpenedLetter(NamedTuple):
    """A letter and its record, or the trouble in reading it.

    Attributes:
      decoded: what its schema makes of a framed value.
      masked: the parts of it that this viewer sees masked.
    """

    row: LetterRow
    found: FoundLetter | None
    trouble: str
    decoded: DecodedValue | None = None
    masked: MaskedParts = MaskedParts()


class EditForm(NamedTuple):
    """The form as a page shows it.

    Attributes:
      refusal: why nothing can be edited here, in a sentence; empty where something can.
      form: what is typed: see `retry.console.web.value_editor`.
      text: what stands in the editor.
      seen: a mark of the value that was revealed, so that only this is replaced.
      attempt: tells one form from the next; sent twice, a form is one action.
      edited: what was typed, looked at; None where nothing was typed yet.
      fault: why it was not saved, in a sentence.
    """

    refusal: str = ""
    form: str = ""
    text: str = ""
    reason: str = ""
    seen: str = ""
    attempt: str = ""
    edited: EditedValue | None = None
    fault: str = ""


def begin_form(request: Request, opened: OpenedLetter) -> EditForm | None:
    """Build the form of a letter that is revealed; None for who may not act on it, and where it cannot be read."""
    if opened.found is None or not viewer_of(request).may(Role.OPERATOR, opened.row.team):
        return None
    try:
        editor = open_editor(request, opened)
    except ValueInvalid as wrong:
        return EditForm(str(wrong))
    return EditForm(
        "", editor.form, editor.text, seen=compute_value_mark(request, opened), attempt=secrets.token_hex(_MARK_BYTES)
    )


def open_editor(request: Request, opened: OpenedLetter) -> ValueEditor:
    """Open the value of a letter whose record could be read; raises ValueInvalid where it cannot be edited here."""
    if opened.masked.paths:
        raise ValueInvalid(REFUSED_EDIT)
    value = opened.found.value if opened.found else None
    return ValueEditor(value, console_of(request).framed, opened.decoded.json if opened.decoded else None)


def compute_value_mark(request: Request, opened: OpenedLetter) -> str:
    """Compute a hash of a letter's value, which tells a later request of the same sign-in which value was shown to it."""
    value = opened.found.value if opened.found else None
    return hash_for_session(request, [opened.row.name.encode(), value or b""], _MARK_BYTES)


def hash_for_session(request: Request, parts: Iterable[bytes], digest_bytes: int) -> str:
    """Hash parts with the secret of a sign-in, so that nobody else can make or choose the result."""
    session = session_of(request)
    hashed = hashlib.blake2b(digest_size=digest_bytes, key=session.csrf if session else b"")
    for part in parts:
        hashed.update(b"%d:" % len(part) + part)
    return hashed.hexdigest()
