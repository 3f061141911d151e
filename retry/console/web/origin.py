"""Whether a request comes from a page of this console: its address, as browsers write it in `Origin`.

A browser sends a form of another site with the cookies of this one; what it cannot do is to send it under our origin.
"""

from __future__ import annotations

from typing import NamedTuple

from starlette.datastructures import URL
from starlette.requests import Request

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class Origin(NamedTuple):
    """The address of the console, as browsers see it.

    Attributes:
      secure: whether browsers speak TLS, with the console or with a proxy in front of it.
      url: as the settings say; empty where they do not.
      behind_proxy: whether a proxy that the settings declare is in front, which says whom it asks for.
    """

    secure: bool
    url: str = ""
    behind_proxy: bool = False

    def asker(self, request: Request) -> str:
        """The address of who asks, as far as it is known: what else stands in the header, anybody can have written."""
        forwarded = ",".join(request.headers.getlist("x-forwarded-for")).rpartition(",")[2].strip() if self.behind_proxy else ""
        return forwarded or (request.client.host if request.client else "")

    def is_own(self, request: Request) -> bool:
        """Whether a page of this console sent it. Browsers always say where a post comes from."""
        said = request.headers.get("origin", "")
        return bool(said) and said in {f"{'https' if self.secure else 'http'}://{request.headers.get('host', '')}", self.url}

    def find_address(self, request: Request) -> str:
        """The address that links begin with."""
        return self.url or f"{'https' if self.secure else 'http'}://{request.headers.get('host', '')}"


def names_loopback(request: Request) -> bool:
    """Whether it was asked for under a name of loopback: another site can make a name of its own point there."""
    host = request.headers.get("host", "")
    return URL(scope={"path": "/", "headers": [(b"host", host.encode("latin-1"))]}).hostname in _LOOPBACK_NAMES if host else True
