"""The process that folds, as the console has it: started, listened to, started again where it ends, and asked to end."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import TimeoutExpired

from msgspec.structs import replace

from retry import clock
from retry.console.folding.reports import CLOSE, Begin, Report, decode_report, encode_begin
from retry.console.rows import Freshness
from retry.kafka import topics
from retry.kafka.child_process import Tethered
from retry.policies.registry import Registry
from retry.process.policy_reload import is_empty
from retry.settings import Settings

log = logging.getLogger(__name__)

_PROGRAM = (sys.executable, "-m", "retry.console.folding.program")
_AGAIN_S, _AGAIN_MAX_S, _END_S = 1.0, 30.0, 10.0
# A fold that is busy hears of brokers between two batches; whoever has nothing to do asks twice a second.
_OLD_S, _SILENT_S = 15.0, 5.0
# How much of a rebuild is done when everything is read, and indexes are built.
_READ = 0.99
REBUILDING, LIVE, CATCHING_UP, OLD = "rebuilding", "live", "catching_up", "old"
# In a steady stream the end that was asked for is folded within a second or two.
_BEHIND_MS, _RATE_S = 2_000, 2.0


class FoldingProcess:
    """The console's handle on the process that folds: starts and restarts it, and keeps its last report; for any thread.

    Args:
      show: is called with the id of the file that pages may show from now on; an empty id stands for no file.

    Attributes:
      report: the newest, as far as it is known which file may be shown.
      generation: a number that grows whenever something that pages show has changed.
    """

    def __init__(
        self, settings: Settings, path: Path, show: Callable[[str], None], registry: Callable[[], Registry] = Registry
    ) -> None:
        self._settings, self._path, self._show, self._registry = settings, path.absolute(), show, registry
        self._changelog = topics.build_topic_names(settings.app_id).changelog
        self.report, self.generation, self._corrupt = Report(answered_s=clock.monotonic_s()), 0, ""
        self._fault, self._pace = "", _Pace()
        self._told = threading.Condition()
        self._closing, self._talking = threading.Event(), threading.Lock()
        self._process: Tethered | None = None
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._run, name="replica", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop the folding process after its current work; where it does not stop, kill it and lose only the work at hand."""
        self._closing.set()
        self._say(CLOSE)
        if self._thread.ident is None:
            return
        self._thread.join(_END_S)
        if self._thread.is_alive() and self._process is not None:
            self._process.kill()
        self._thread.join()

    def report_corrupt(self, file_id: str) -> None:
        self._corrupt = file_id
        self._show("")
        self._say(file_id.encode())

    @property
    def progress(self) -> float:
        """How much of a rebuild is done, from 0 to 1."""
        report = self.report
        total = sum(place.end - place.begun for place in report.places)
        done = sum(place.next_offset - place.begun for place in report.places)
        return 1.0 if report.file_id else min(_READ, max(0.0, done / total)) if total else 0.0

    def freshness(self) -> Freshness:
        report, progress = self.report, self.progress
        lag, silent_s = report.lag_records, clock.monotonic_s() - report.answered_s
        silent = silent_s > (_OLD_S if lag else _SILENT_S) and progress != _READ
        age_ms = None if report.as_of_ms is None else clock.wall_ms() - report.as_of_ms
        # Records that brokers gave before they went may still be read, beyond the ends that they told last.
        unaware = not lag and age_ms is not None and age_ms > _SILENT_S * 1_000 + _BEHIND_MS
        is_old = silent or unaware or report.is_stopped or bool(self._fault)
        is_behind = lag > 0 and (age_ms is None or age_ms > _BEHIND_MS)
        state = REBUILDING if not report.file_id else OLD if is_old else CATCHING_UP if is_behind else LIVE
        trouble = report.trouble or (f"nothing was heard of brokers for {silent_s:.0f} s" if silent else "")
        if unaware and not trouble:
            trouble = f"brokers have not said for {(age_ms or 0) / 1_000:.0f} s where their topics end"
        remaining_ms = self._pace.remaining_ms if state == CATCHING_UP else None
        return Freshness(state, progress, report.as_of_ms, lag, "; ".join(filter(None, (self._fault, trouble))), remaining_ms)

    def list_shard_positions(self) -> list[tuple[int, int, int]]:
        """Return (partition, next offset to fold, last known end offset) for each partition of the changelog, in order."""
        of_changelog = (place for place in self.report.places if place.topic == self._changelog)
        return sorted((place.partition, place.next_offset, place.end) for place in of_changelog)

    def has_folded(self, topic: str, partition: int, offset: int, within_s: float) -> bool:
        """Wait until a record is in the replica."""
        deadline = clock.Deadline(within_s)

        def is_there() -> bool:
            places = self.report.places
            return any(each.next_offset > offset for each in places if (each.topic, each.partition) == (topic, partition))

        with self._told:
            while not is_there() and not deadline.has_passed():
                clock.wait(self._told, deadline.remaining_s())
            return is_there()

    def _run(self) -> None:
        again_s = _AGAIN_S
        while not self._closing.is_set():
            began_s = clock.monotonic_s()
            try:
                how = f"has ended with {self._follow_process()}"
            except OSError as error:
                how = f"cannot be started ({error})"
            if self._closing.is_set():
                return
            again_s = _AGAIN_S if clock.monotonic_s() - began_s > _AGAIN_MAX_S else min(2 * again_s, _AGAIN_MAX_S)
            self._fault = f"the process that folds {how}, and is started again"
            log.error("%s in %.0f s", self._fault, again_s)
            self._closing.wait(again_s)

    def _follow_process(self) -> int:
        ours, theirs = socket.socketpair()
        with theirs, Connection(ours.detach()) as connection:
            # What a terminal sends to all is for the console alone.
            command = [*_PROGRAM, str(theirs.fileno())]
            process = self._process = Tethered(command, None, own_session=True, pass_fds=[theirs.fileno()])
            theirs.close()
            with suppress(OSError, EOFError):
                self._begin_folding(connection)
                while True:
                    self._accept_report(decode_report(connection.recv_bytes()))
            with self._talking:
                self._connection = None
        return _wait_for_end(process)

    def _begin_folding(self, connection: Connection) -> None:
        begin = Begin(self._settings, self._path, self._corrupt, has_policies=not is_empty(self._registry()))
        with self._talking:
            connection.send_bytes(encode_begin(begin))
            self._connection = connection
        # Whoever closed before found nobody to tell.
        if self._closing.is_set():
            self._say(CLOSE)

    def _accept_report(self, report: Report) -> None:
        before, self._fault = self.report, ""
        if report.file_id is None:
            report = replace(before, trouble=report.trouble, is_stopped=report.is_stopped, unreadable=report.unreadable)
        if report.file_id and report.file_id == self._corrupt:
            report = replace(report, file_id="")
        self._show(report.file_id or "")
        # One that tells only that brokers were heard of tells nothing of the pace.
        if report.places != before.places:
            self._pace.note_lag(report.lag_records)
        with self._told:
            self.report = report
            # One that was started again counts from nothing.
            self.generation += (report.generation, report.file_id) != (before.generation, before.file_id)
            self._told.notify_all()

    def _say(self, word: bytes) -> None:
        with self._talking, suppress(OSError):
            if self._connection is not None:
                self._connection.send_bytes(word)


class _Pace:
    """How fast the replica catches up, by how far it was behind a while ago and is now; written by one thread, read by any.

    Attributes:
      remaining_ms: until nothing is left; None while that is not known, as where it falls further behind.
    """

    def __init__(self) -> None:
        self.remaining_ms: int | None = None
        self._before: tuple[float, int] | None = None

    def note_lag(self, lag_records: int) -> None:
        """Note how many records are there and not folded."""
        now_s = clock.monotonic_s()
        if not lag_records:
            self.remaining_ms = self._before = None
        elif self._before is None:
            self._before = now_s, lag_records
        elif (passed_s := now_s - self._before[0]) >= _RATE_S:
            caught_up = self._before[1] - lag_records
            self.remaining_ms = int(lag_records * passed_s / caught_up * 1_000) if caught_up > 0 else None
            self._before = now_s, lag_records


def _wait_for_end(process: Tethered) -> int:
    """The exit code of one that says nothing any more."""
    try:
        return process.wait(_END_S)
    except TimeoutExpired:
        process.kill()
        return process.wait()
