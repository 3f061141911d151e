"""The name under which the service is installed, and whether `retry` and `backoff` are its own: others have these names, too.

Imports nothing of the service, so that it can say so before anything else of it is imported.
"""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import PackageNotFoundError, version

NAME = "dead-letter-retry"
_PACKAGES = ("retry", "backoff")


def find_foreign_package() -> str:
    """Say in one sentence which package that should be the service's is another's, and what to do; empty where none is."""
    for name in _PACKAGES:
        try:
            found = importlib.import_module(name)
            whose, where = getattr(found, "DISTRIBUTION", None), getattr(found, "__file__", None)
        except ImportError as error:
            whose, where = None, error
        if whose != NAME:
            what = f"is another package here ({where})" if where else "is not whole here: another package of that name was here"
            return (
                f"`{name}` {what}; {NAME} has a `{name}` of its own: install it in an environment of its own, by pipx, "
                "`python -m venv` or its image (docs/how-to/install.md)"
            )
    return ""


def demand_own_packages() -> None:
    """End the process with one sentence where `retry` or `backoff` is not the service's own."""
    if foreign := find_foreign_package():
        sys.exit(foreign)


def describe_extra(extra: str) -> str:
    """Say which command installs an extra of the service, such as `analytics`."""
    try:
        wheel = f"{NAME.replace('-', '_')}-{version(NAME)}-py3-none-any.whl"
    except PackageNotFoundError:
        wheel = "."
    return f"pip install '{wheel}[{extra}]', where docs/how-to/install.md says how to get that file"
