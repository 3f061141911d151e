"""The list of components of an image is one by CycloneDX's own schema."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.component_lists import flaws
from tests.unit.project.test_image_components import make_list

pytestmark = pytest.mark.slow


def test_the_list_of_an_image_is_one_by_its_schema(tmp_path: Path) -> None:
    listed = tmp_path / "analytics-amd64.cdx.json"
    well = make_list(tmp_path / "root")
    listed.write_bytes(well)
    assert flaws(listed) == ""
    # It would have been found.
    listed.write_bytes(well.replace(b'"library"', b'"packet"', 1))
    assert "packet" in flaws(listed)
    listed.write_bytes(well.replace(b"%2Bdeb12u1", b"+deb12u1"))
    assert "+deb12u1" in flaws(listed)
