"""`python -m tests.support.limited FILES …`: `retry …` with so many files that it may have open."""

from __future__ import annotations

import resource
import sys

from retry.__main__ import main

if __name__ == "__main__":
    files = int(sys.argv.pop(1))
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    main()
