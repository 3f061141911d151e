"""A machine whose own name has no address, as a container's may: a session of Spark starts there, too."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from tests.support.process import ROOT

# A Java that is given a file of hosts asks nobody else for names, and in this one there are none.
SESSION = """
from retry.analytics.spark_session import open_session
with open_session("test", kafka=False, java="-Djdk.net.hosts.file=/dev/null") as spark:
    print(spark.range(7).selectExpr("sum(id)").first()[0])
"""


def test_a_session_starts_where_the_machine_does_not_know_its_own_name() -> None:
    environ = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
    done = subprocess.run(
        [sys.executable, "-c", SESSION], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stdout.split() == ["21"], done.stderr
