"""Which tests run in the same process, where `--dist loadscope` shares them out: those of a file, and all that use Spark."""

from __future__ import annotations

from functools import cache

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.support.chart import ROOT


class ByFile(LoadScopeScheduling):
    """One session of Spark takes all cores and seconds to start, so one process has it."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "spark" if _uses_spark(file) else file


@cache
def _uses_spark(file: str) -> bool:
    return file.startswith("tests/") and "SparkSession" in (ROOT / file).read_text()


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling | None:
    return ByFile(config, log) if config.getoption("dist") == "loadscope" else None
