"""A scan says what is known, and never that all is well of what it could not look up."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from release.scan import KNOWN, UNASKED, Found, join_found, read

# As pip-audit 2.10 prints them.
WELL: dict[str, Any] = {"name": "click", "version": "8.1.0", "vulns": []}
BAD: dict[str, Any] = {"name": "aiohttp", "version": "3.13.2", "vulns": [{
    "id": "PYSEC-2026-1", "fix_versions": ["3.13.4"], "aliases": ["CVE-2026-22815"], "description": "…",
}]}  # fmt: skip
UNMENDED: dict[str, Any] = {"name": "x", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": [], "aliases": []}]}
SKIPPED: dict[str, Any] = {"name": "arrow", "skip_reason": "Dependency not found on PyPI and could not be audited: arrow (1.4.0)"}


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        ([WELL], 0, ["1 packages looked up, 0 vulnerabilities known"]),
        ([WELL, BAD], KNOWN, ["aiohttp 3.13.2: PYSEC-2026-1, CVE-2026-22815; mended in 3.13.4"]),
        ([UNMENDED], KNOWN, ["x 1: CVE-1; mended in no version yet"]),
        ([WELL, SKIPPED], UNASKED, ["1 packages could not be looked up, as arrow", "serves no advisories"]),
        ([SKIPPED, BAD], KNOWN, ["aiohttp 3.13.2", "could not be looked up"]),
        ([], UNASKED, ["0 packages looked up"]),
    ],
    ids=["well", "known", "not mended", "one was not asked", "known and not asked", "nothing"],
)
def test_a_scan_says_what_it_found_and_what_it_did_not_look_up(
    packages: list[dict[str, Any]], code: int, said: list[str]
) -> None:
    found = read(orjson.dumps({"dependencies": packages, "fixes": []}))
    assert found.code() == code
    assert all(words in found.text() for words in said)


def test_what_several_locks_name_is_told_once() -> None:
    found = join_found([Found(2, ["a 1: CVE-1"], ["b"]), Found(1, ["a 1: CVE-1"], ["b", "c"])])
    assert found == Found(3, ["a 1: CVE-1"], ["b", "c"])
