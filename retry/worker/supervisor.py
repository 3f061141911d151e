"""`retry worker --processes N`: several workers on one machine, and a process that starts, watches and ends them.

Each is a worker like any other, with a data directory and an instance name of its own. Whoever asks the supervisor for health or
metrics hears of all of them. A worker that ends is started again; one that does so again and again ends them all. A supervisor
that is killed takes its workers with it: the end of their standard input tells them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence

from retry.clock import monotonic_s
from retry.http_server import HttpServer
from retry.worker.health_server import Http, SupervisorHealth

log = logging.getLogger(__name__)

_AGAIN_S = 1.0
_ENDS_MAX, _ENDS_WITHIN_S = 5, 60.0


class Supervisor:
    """Workers of one machine, one for each environment; `options` are their command's, `once` more for its first start."""

    def __init__(self, environments: Sequence[Mapping[str, str]], options: Sequence[str] = (), once: Sequence[str] = ()) -> None:
        self._environments = environments
        self._options, self._once = options, dict.fromkeys(range(len(environments)), once)
        self._sockets = [_listening() for _ in environments]
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._ends: deque[float] = deque(maxlen=_ENDS_MAX)
        self._code, self._stopping = 0, asyncio.Event()

    async def run(self, host: str, port: int, hosts: str = "") -> int:
        """Run until SIGTERM or SIGINT, or until workers keep ending, and return the exit code.

        Health and metrics of all are served at `host` and `port`; see `retry.http_server`.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._signal_workers, signal.SIGHUP)
        together = SupervisorHealth([listening.getsockname()[1] for listening in self._sockets])
        server = HttpServer(Http(together.health, together.metrics).app, "http", host, port, hosts=hosts)
        server.start()
        try:
            await asyncio.gather(*(self._supervise_worker(number) for number in range(len(self._environments))))
        finally:
            await asyncio.to_thread(server.stop)
        return self._code

    async def _supervise_worker(self, number: int) -> None:
        stopping = asyncio.ensure_future(self._stopping.wait())
        while not self._stopping.is_set():
            process = self._running[number] = await self._start_process(number)
            await asyncio.wait([stopping, ended := asyncio.ensure_future(process.wait())], return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                process.terminate()
            code = await ended
            del self._running[number]
            if self._stopping.is_set():
                self._code = self._code or max(0, code)
            else:
                self._note_end(number, process.pid, code)
                await asyncio.wait([stopping], timeout=_AGAIN_S)

    async def _start_process(self, number: int) -> asyncio.subprocess.Process:
        listening = self._sockets[number].fileno()
        command = [sys.executable, "-m", "retry", "worker", "--supervised", str(listening)]
        command += [*self._options, *self._once.pop(number, ())]
        environment = dict(self._environments[number])
        # The pipe is never written to; that it ends is what it tells.
        return await asyncio.create_subprocess_exec(
            *command, env=environment, pass_fds=[listening], stdin=asyncio.subprocess.PIPE
        )

    def _note_end(self, number: int, pid: int, code: int) -> None:
        log.error("worker %d (process %d) ended with code %d", number, pid, code)
        self._ends.append(monotonic_s())
        if len(self._ends) == _ENDS_MAX and self._ends[-1] - self._ends[0] < _ENDS_WITHIN_S:
            log.error("%d workers ended within a minute: ending all of them; what ended them stands above", _ENDS_MAX)
            self._code = 1
            self._stopping.set()

    def _signal_workers(self, number: signal.Signals) -> None:
        for process in self._running.values():
            process.send_signal(number)


def end_with_supervisor() -> None:
    """Let the end of standard input end this process in an orderly way."""

    def wait() -> None:
        # Not through the buffer: an interpreter that ends while a thread waits there aborts, and its exit code is lost.
        while os.read(sys.stdin.fileno(), 1):
            continue
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="supervisor", daemon=True).start()


def _listening() -> socket.socket:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    return listening
