"""`retry` and `backoff` are also names of popular packages: here they must be ours, and ours alone."""

from __future__ import annotations

import importlib
import json
from importlib.metadata import Distribution, distribution, packages_distributions
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

OURS = "dead-letter-retry"
NAMES = ("retry", "backoff")


def installed() -> Distribution:
    return distribution(OURS)


def roots(found: Distribution) -> set[Path]:
    """Where the distribution's packages lie: among its files, or in the checkout that it is an editable install of."""
    direct = json.loads(found.read_text("direct_url.json") or "{}")
    url = urlparse(direct.get("url", ""))
    checkout = {Path(unquote(url.path)).resolve()} if url.scheme == "file" else set()
    return checkout | {Path(str(found.locate_file(""))).resolve()}


def test_our_distribution_is_installed() -> None:
    assert installed().metadata["Name"] == OURS


@pytest.mark.parametrize("name", NAMES)
def test_no_other_distribution_claims_the_name(name: str) -> None:
    # An editable install lists no packages, so ours need not be named; nobody else may be.
    assert set(packages_distributions().get(name, [])) <= {OURS}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_imported_is_ours(name: str) -> None:
    file = Path(importlib.import_module(name).__file__ or "").resolve()
    assert file.parent.parent in roots(installed())
