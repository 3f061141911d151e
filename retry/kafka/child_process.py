"""Starts a process that does not outlive this one, however this one ends: kill -9 too.

A second process, of the shell alone, waits for the end of a pipe whose other end this process has, and kills the first. So it
holds on every POSIX system, without root and whichever thread starts it. The first puts its own id into the pipe before it
becomes what it is to be: there is no moment at which it runs and nobody waits.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from typing import IO

_WATCH = 'read -r pid && { read -r _; kill -9 "$pid"; }'
_BECOME = 'echo $$ >&0 && exec "$@" </dev/null'


class Tethered(subprocess.Popen[bytes]):
    """A process with nothing to read, and its output in a file; None leaves it where this process's goes.

    `own_session` keeps from it what a terminal sends to this process's group.
    """

    def __init__(
        self, command: Sequence[str], output: IO[bytes] | None, environ: Mapping[str, str] | None = None,
        *, own_session: bool = False, pass_fds: Collection[int] = (),
    ) -> None:  # fmt: skip
        reads, self._alive = os.pipe()
        try:
            self._watch = subprocess.Popen(  # noqa: S603
                ["/bin/sh", "-c", _WATCH],
                stdin=reads, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            super().__init__(
                ["/bin/sh", "-c", _BECOME, "sh", *command],
                stdin=self._alive, stdout=output, stderr=output, env=environ, start_new_session=own_session,
                pass_fds=pass_fds,
            )  # fmt: skip
        finally:
            os.close(reads)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended, end its watcher, and return the exit code."""
        code = super().wait(timeout)
        self._release()
        return code

    def poll(self) -> int | None:
        """Return the exit code and end the watcher, or None while the process runs."""
        code = super().poll()
        if code is not None:
            self._release()
        return code

    def _release(self) -> None:
        # First who would kill: by the time that the pipe ends, its process's id may be another's.
        if self._watch.returncode is None:
            self._watch.kill()
            self._watch.wait()
            os.close(self._alive)
