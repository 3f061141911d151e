"""Refusals, as `application/problem+json` (RFC 9457); each says what to do."""

from __future__ import annotations

from http import HTTPStatus


class Problem(Exception):
    """A request that is not done; `detail` is for whoever made it."""

    def __init__(self, status: HTTPStatus, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers or {}

    def body(self) -> dict[str, object]:
        """As it is answered."""
        return {"type": "about:blank", "title": self.status.phrase, "status": self.status.value, "detail": self.detail}


def bad(detail: str) -> Problem:
    """What is asked for cannot be."""
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
