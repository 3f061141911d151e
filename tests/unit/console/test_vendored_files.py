"""What is vendored is what was fetched, has its licence, and is all that pages load; own JavaScript stays small."""

from __future__ import annotations

import hashlib
import re

from retry.console.web.application import FOLDER, Assets
from tests.support.console import serve_console

VENDOR = FOLDER / "vendor"
OWN_LINES_MAX = 500


def test_every_vendored_file_has_the_hash_that_is_noted() -> None:
    noted = dict(reversed(line.split()) for line in (VENDOR / "SHA256SUMS").read_text().splitlines())
    held = {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in VENDOR.iterdir()}
    assert {name: held.pop(name) for name in ("SHA256SUMS", "VERSIONS.md")}
    assert held == noted


def test_every_vendored_file_is_told_of_with_its_licence() -> None:
    told = (VENDOR / "VERSIONS.md").read_text()
    assert all(f"`{each.name}`" in told for each in VENDOR.iterdir() if each.suffix in (".js", ".css", ".LICENSE"))
    assert "permission" in (VENDOR / "htmx.LICENSE").read_text().lower()
    assert "Permission is hereby granted" in (VENDOR / "uPlot.LICENSE").read_text()


def test_own_scripts_stay_short() -> None:
    own = list(FOLDER.glob("*.js"))
    assert own
    assert sum(len(each.read_text().splitlines()) for each in own) <= OWN_LINES_MAX


def test_pages_load_nothing_but_what_is_served_here_and_browsers_keep_it() -> None:
    browser = serve_console().browser()
    html = browser.get("/").text
    loaded = re.findall(r'(?:src|href)="(/static/[^"]+)"', html)
    assert {path.rsplit("/", 1)[1] for path in loaded} == {
        "htmx.min.js", "hx-sse.min.js", "uPlot.iife.min.js", "uPlot.min.css", "console.js", "times.js", "console.css",
        "icon.svg",
    }  # fmt: skip
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', html)
    for path in loaded:
        answer = browser.get(path)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
        assert answer.headers["content-type"].split(";")[0] in ("text/javascript", "text/css", "image/svg+xml")
    assert browser.get("/static/0000000000000000/console.js").status_code == 404
    assert browser.get("/static/../web/app.py").status_code == 404


def test_the_address_of_a_file_changes_with_what_it_holds() -> None:
    assets = Assets()
    digest = hashlib.sha256((FOLDER / "console.js").read_bytes()).hexdigest()
    assert assets.address("console.js") == f"/static/{digest[:16]}/console.js"
