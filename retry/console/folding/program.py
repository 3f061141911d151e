"""The process that folds topics into the replica's file, beside the console that answers from it.

A process of its own, because folding keeps an interpreter busy, and pages would wait for it. It ends with the console; where it
is killed, the console starts it again, and it goes on from its file.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection

from retry.console.folding.follower import Follower
from retry.console.folding.replica_file import ReplicaFile
from retry.console.folding.reports import CLOSE, Begin, Report, decode_begin, encode_report
from retry.errors import RetryError
from retry.policies.registry import Registry
from retry.process import start
from retry.process.logs import build_logging, configure_logs
from retry.process.policy_reload import watch_policies

log = logging.getLogger(__name__)

_AGAIN_S = 0.5


def main() -> None:
    """Fold until the console says that it ends, or has ended; the argument is the number of the pipe to it."""
    # Whoever asks all processes of a service to end also asks the console, which has this one end when it does.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    start.tune_process()
    start.calm_collector()
    connection, closing = Connection(int(sys.argv[1])), threading.Event()
    begin = decode_begin(connection.recv_bytes())
    configure_logs(build_logging(begin.settings.log_format, begin.settings.log_level))
    file = ReplicaFile(begin.path, begin.corrupt)
    threading.Thread(target=_listen, args=(connection, file, closing), name="console", daemon=True).start()

    def send_report(report: Report) -> None:
        # Who has ended is told no more; that is heard as the end of the pipe.
        with suppress(OSError):
            connection.send_bytes(encode_report(report))

    registry = _registry(begin, send_report, closing)
    if registry is not None:
        Follower(begin.settings, registry, file, send_report, closing).run()


def _listen(connection: Connection, file: ReplicaFile, closing: threading.Event) -> None:
    with suppress(OSError, EOFError):
        while (said := connection.recv_bytes()) != CLOSE:
            file.corrupt = said.decode()
    closing.set()


def _registry(begin: Begin, tell: Callable[[Report], None], closing: threading.Event) -> Callable[[], Registry] | None:
    """The policy file, once it can be used, and no process of a killed console folds into this file; None where the console ends.
    """
    trouble = ""
    while not closing.is_set():
        try:
            registry = watch_policies(begin.settings, starts_empty=not begin.has_policies)
            start.claim_directory(begin.path.parent / "folding")
            return registry
        except RetryError as error:
            if str(error) != trouble:
                log.error("the replica does not go on: %s", error)
            trouble = str(error)
            tell(Report(trouble=trouble, is_stopped=True))
            closing.wait(_AGAIN_S)
    return None


if __name__ == "__main__":
    main()
