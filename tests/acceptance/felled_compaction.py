"""A compaction that kills itself and its Java process with SIGKILL at a named point.

    python -m tests.acceptance.felled_compaction DATA <point>:<n>

The points are patched in from outside, so that the product has no switch for them. `n` counts how often the point is passed
before the end comes.

| point | what was done |
| --- | --- |
| staged | merged files are written, some of them may be moved: before the next is |
| written | all are moved, and the new list lies beside the old one |
| unchecked | and the old list has no checksum any more |
| switched | the new list counts, and nothing was said of it |
| removed | some of what counts no longer is deleted |
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from retry.__main__ import main
from retry.analytics.file_list import FileList

_POINTS = {
    "staged": ("move_file", False),
    "written": ("_write", True),
    "unchecked": ("_forget_checksum", True),
    "switched": ("replace", True),
    "removed": ("delete", True),
}


def _fell_at(point: str, most: int) -> None:
    name, is_after = _POINTS[point]
    usual: Callable[..., Any] = getattr(FileList, name)
    passed: Counter[str] = Counter()

    def end_process_at_call(*arguments: Any) -> Any:
        answer = usual(*arguments) if is_after else None
        passed[point] += 1
        if passed[point] == most:
            os.killpg(0, signal.SIGKILL)
        return answer if is_after else usual(*arguments)

    setattr(FileList, name, end_process_at_call)


if __name__ == "__main__":
    data, (point, _, most) = sys.argv[1], sys.argv[2].partition(":")
    _fell_at(point, int(most))
    main(["analytics", "compact", data, "--keep", "1ms"])
