"""Refusals, as `application/problem+json` (RFC 9457); each says what to do."""

from __future__ import annotations

from http import HTTPStatus


class Problem(Exception):
    """A refused request; `detail` tells the client what to do."""

    def __init__(self, status: HTTPStatus, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers or {}

    def body(self) -> dict[str, object]:
        """The fields of the answer."""
        return {"type": "about:blank", "title": self.status.phrase, "status": self.status.value, "detail": self.detail}


def bad(detail: str) -> Problem:
    """Make the refusal of a request whose content cannot be used: status 422."""
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
