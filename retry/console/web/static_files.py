"""Scripts, styles and the icon: read once, served under the hash of what they hold, so browsers may keep them for ever."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from retry.console.web.rights import ANY_FIELD, needs

FOLDER = Path(__file__).parent / "static"
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_HASH_CHARS = 16
_FOR_EVER = "public, max-age=31536000, immutable"


class Asset(NamedTuple):
    """One static file: the first 16 hex digits of its SHA-256, its media type, and its bytes."""

    hash: str
    kind: str
    content: bytes


class Assets:
    """All files of a folder, by their path below it."""

    def __init__(self, folder: Path = FOLDER) -> None:
        files = sorted(each for each in folder.rglob("*") if each.suffix in _KINDS)
        self._assets: Mapping[str, Asset] = {each.relative_to(folder).as_posix(): _asset(each) for each in files}

    def address(self, name: str) -> str:
        """Return the path of the URL under which browsers get a file."""
        return f"/static/{self._assets[name].hash}/{name}"

    def build_routes(self) -> list[Route]:
        """The route of all of them; it is open, as the page to sign in needs them."""

        @needs(None, ANY_FIELD)
        def send(request: Request) -> Response:
            asset = self._assets.get(request.path_params["name"])
            if asset is None or asset.hash != request.path_params["hash"]:
                raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such file; load the page again")
            return Response(asset.content, media_type=asset.kind, headers={"Cache-Control": _FOR_EVER})

        return [Route("/static/{hash}/{name:path}", send)]


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    return Asset(hashlib.sha256(content).hexdigest()[:_HASH_CHARS], _KINDS[path.suffix], content)
