"""Whether a list of components is one: by CycloneDX's own schema, and by the package that writes package URLs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.tools import release_tool

_CHECK = """
import json, sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
text = open(sys.argv[1]).read()
found = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
urls = [each["purl"] for each in json.loads(text)["components"] if "purl" in each]
odd = [url for url in urls if PackageURL.from_string(url).to_string() != url]
sys.exit(str(found or odd or "") or 0)
"""


def flaws(document: Path) -> str:
    """Describe what is wrong with a list; empty where all is well."""
    checked = subprocess.run([release_tool("python"), "-c", _CHECK, document], capture_output=True, text=True, check=False)
    return checked.stderr if checked.returncode else ""
