"""Parameters of a test that are of the third size, `make faults`, where one of them is enough for `make check`."""

from __future__ import annotations

from typing import Any

import pytest


def only_in_faults(*values: Any) -> list[Any]:
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]
