"""Spans cost a worker nothing that does not send any."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.process import ROOT

pytestmark = pytest.mark.check


def test_a_worker_that_is_not_asked_for_spans_does_not_even_import_what_makes_them() -> None:
    code = "import sys, retry.worker.composition, retry.worker.faust_app; "
    code += "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
