"""The Faust shell: an agent on a channel, timers, and the services that read, each in a thread of its own.

The only importer of faust. Faust hosts; librdkafka carries. The app runs with Kafka off, which takes three things: no
wait for the recovery of tables that it does not have, its flow control opened by hand, and no web server of its own.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterable, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

import faust
from faust.app.base import BootStrategy
from mode import Service

from retry import clock
from retry.errors import RetryError
from retry.http_server import HttpServer
from retry.process import start
from retry.process.logs import build_logging
from retry.process.self_restart import THIS_PROCESS, end_in_time
from retry.settings import Settings
from retry.worker.engine import Engine
from retry.worker.health_server import Http
from retry.worker.shards.assignment import FoldWork
from retry.worker.shards.joint_sweep import AT_ONCE

log = logging.getLogger(__name__)

# Batches that wait in the channel; a full one stops the reading thread, and that is all the back-pressure there is.
_AHEAD = 1
# Batches of letters that are written or committed: a transaction each, see `retry.intake.overlapping_transactions`.
_UNDER_WAY = 2
_THREADS = 16
# Whoever reads folds fewer than these at once: handing them to another thread would cost more than it brings.
_MANY_RECORDS = 500
# A batch is worked out in one go of some 50 ms; handing the interpreter around every 5 ms makes intake a tenth slower.
_SWITCH_S = 0.01
_LOOK_S = 0.5
_CHECK_EVERY_S = 1.0
# Every transaction costs the same: where few letters are due, those of so much time are sent together.
_PACE_S = 0.075


class _Boot(BootStrategy):
    enable_kafka = False
    enable_web = False


class _App(faust.App):
    BootStrategy = _Boot

    async def _wait_for_table_recovery_completed(self) -> bool:
        return False

    async def on_started(self) -> None:
        self.flow_control.resume()
        await super().on_started()


class _Worker(faust.Worker):
    """Runs the app to its end. What says what an operator does next is told in one line, by whoever called."""

    def __init__(self, app: faust.App, engine: Engine, logs: dict[str, Any]) -> None:
        super().__init__(app, loglevel="INFO", logging_config=logs, redirect_stdouts=False)
        self._brokers_answer = engine.brokers_answer

    async def on_first_start(self) -> None:
        await super().on_first_start()
        THIS_PROCESS.set_stop(lambda: self.loop.call_soon_threadsafe(self._begin_shutdown, signal.SIGTERM))

    def _schedule_shutdown(self, signal: signal.Signals) -> None:
        THIS_PROCESS.note_end_asked()
        self._begin_shutdown(signal)

    def _begin_shutdown(self, signal: signal.Signals) -> None:
        if not self._signal_stop_time:
            threading.Thread(target=end_in_time, args=[self._brokers_answer], name="shutdown", daemon=True).start()
        super()._schedule_shutdown(signal)

    def execute_from_commandline(self) -> NoReturn:
        self._starting_fut = asyncio.ensure_future(self.start(), loop=self.loop)
        try:
            with suppress(asyncio.CancelledError):
                self.loop.run_until_complete(self._starting_fut)
        finally:
            self._starting_fut.cancel()
            self.on_worker_shutdown()
            # Raises what ended it.
            self.stop_and_shutdown()
        sys.exit(0)


class _Feed(Service):
    """Reads in a thread of its own, and hands on what it has read; the loop hears of nothing else.

    It stops before the agents do, so that what it read can still be taken in. Where `hand_on` gives a future, the next is read
    when that is done.
    """

    def __init__(self, read: Callable[[], Any], close: Callable[[], None], hand_on: Callable[[Any], Future[None] | None]) -> None:
        super().__init__()
        self._read, self._close, self._hand_on = read, close, hand_on
        self._thread = ThreadPoolExecutor(1, "feed")

    @Service.task
    async def _pump(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, _logging_failure, self._follow)

    def _follow(self) -> None:
        while not self.should_stop:
            if found := self._read():
                self._await(self._hand_on(found))

    def _await(self, handing: Future[None] | None) -> None:
        # Nobody may be there any more who takes it.
        while handing is not None and wait([handing], _LOOK_S).not_done:
            if self.should_stop:
                handing.cancel()
                return

    async def on_stop(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)


class _Endpoint(Service):
    def __init__(self, server: HttpServer) -> None:
        super().__init__()
        self._server = server

    async def on_start(self) -> None:
        self._server.start()

    async def on_stop(self) -> None:
        await asyncio.to_thread(self._server.stop)


class _HangUp(Service):
    def __init__(self, hang_up: Callable[[], None]) -> None:
        super().__init__()
        self._hang_up = hang_up

    async def on_start(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hang_up)


for _service in (_App, _Feed, _Endpoint, _HangUp):
    # Starting and stopping of services is of no interest to operators.
    _service.logger = logging.getLogger("mode.services")


def _logging_failure(step: Callable[..., Any], *arguments: Any) -> Any:
    """Do a step, and log what nobody expected: the event loop makes another `TimeoutError` of one, without a traceback."""
    try:
        return step(*arguments)
    except Exception as error:
        if not isinstance(error, RetryError):
            log.exception("cannot go on")
        raise


class _Threads:
    """Runs the engine's blocking steps in threads. What the engine does not expect ends the process."""

    def __init__(self, app: faust.App, engine: Engine) -> None:
        self._app, self._engine = app, engine
        self._pool = ThreadPoolExecutor(_THREADS, "engine")
        self._sweeps: set[asyncio.Future[None]] = set()
        self._folds, self._quiet_until_s, self._paced_until_s = 0, 0.0, 0.0
        self._folded = asyncio.Event()

    async def run(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Do one step; a crash is safe at any point, since a restart finds everything in Kafka."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, _logging_failure, step, *arguments)
        except Exception as error:
            await self._app.crash(error)
            raise

    def sweep(self) -> None:
        """Begin a sweep, unless nothing can be due yet, or few were sent just now; beside another one only where much is due."""
        if clock.monotonic_s() < max(self._quiet_until_s, self._paced_until_s):
            return
        self._sweeps = {sweeping for sweeping in self._sweeps if not sweeping.done()}
        if len(self._sweeps) < (AT_ONCE if self._engine.much_is_due else 1):
            self._sweeps.add(self._app.add_future(self._sweep()))

    async def _sweep(self) -> None:
        folds, begun_s = self._folds, clock.monotonic_s()
        quiet_s = await self.run(self._engine.sweep_and_rest)
        if quiet_s:
            # What was folded meanwhile may be due sooner.
            self._quiet_until_s = clock.monotonic_s() + quiet_s if self._folds == folds else 0.0
        self._paced_until_s = begun_s + _PACE_S if self._engine.sent_few else 0.0

    def note_fold(self) -> None:
        """Note that something new is in the tables and may be due, so that the next sweep does not wait."""
        self._folds, self._quiet_until_s = self._folds + 1, 0.0
        self._folded.set()

    async def rest_between_sweeps(self, seconds: float) -> None:
        """Wait so long between two sweeps; longer after few were sent, or where nothing can be due, until something is folded."""
        if (paced_s := self._paced_until_s - clock.monotonic_s()) > 0.0:
            await asyncio.sleep(max(seconds, paced_s))
            return
        quiet_s = self._quiet_until_s - clock.monotonic_s()
        if quiet_s <= seconds:
            await asyncio.sleep(seconds)
            return
        self._folded.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._folded.wait(), quiet_s)


class _Folding:
    """Folds what the reading thread hands on: few records there and then, many in a thread of its own, while more are read."""

    def __init__(self, app: faust.App, threads: _Threads, engine: Engine) -> None:
        self._app, self._threads, self._engine = app, threads, engine
        self._pool = ThreadPoolExecutor(1, "fold")
        self._last: Future[None] | None = None

    def submit_portions(self, portions: FoldWork) -> Future[None] | None:
        """Fold; what is returned is over when there is room for what is read next."""
        if (self._last is None or self._last.done()) and sum(len(messages) for _, messages in portions) < _MANY_RECORDS:
            self._apply_portions(portions)
            return None
        before, self._last = self._last, self._pool.submit(self._fold_beside, portions)
        return before

    def await_folds(self) -> None:
        if self._last is not None:
            wait([self._last])

    def _apply_portions(self, portions: FoldWork) -> None:
        self._engine.apply_portions(portions)
        self._app.loop.call_soon_threadsafe(self._threads.note_fold)

    def _fold_beside(self, portions: FoldWork) -> None:
        try:
            _logging_failure(self._apply_portions, portions)
        except Exception as error:
            # Nobody else hears of it. What follows is not folded, see `Engine.apply_portions`.
            asyncio.run_coroutine_threadsafe(self._app.crash(error), self._app.loop)
            raise


class _Intake:
    """Takes batches of letters in by three stages: prepare, write, commit; each has one batch at a time, in their order.

    While one is committed, the next is written, those after that are gathered, and one is prepared that is too many for them.
    """

    def __init__(self, app: faust.App, threads: _Threads, engine: Engine) -> None:
        self._app, self._threads, self._engine = app, threads, engine
        self._room, self._writing, self._committing = asyncio.Semaphore(_UNDER_WAY), asyncio.Lock(), asyncio.Lock()
        self._gathering = engine.gathering
        self._timer: asyncio.TimerHandle | None = None

    async def take_in(self, batch: Any) -> None:
        """Prepare a batch; where it must not wait for others, wait for its turn to be written. It goes on by itself then."""
        prepared = await self._threads.run(self._engine.prepare, batch)
        if prepared is None:
            return
        if not self._gathering.has_room(prepared):
            await self._write()
        self._gathering.add_batch(prepared)
        if remaining_s := self._gathering.remaining_s():
            self._write_in(remaining_s)
        else:
            await self._write()

    def _write_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, lambda: self._app.add_future(self._write()))

    async def _write(self) -> None:
        """Wait for the turn of what is gathered by then to be written."""
        await self._room.acquire()
        await self._writing.acquire()
        if (gathered := self._gathering.take_batch()) is not None:
            self._app.add_future(self._write_and_commit(gathered))
            return
        self._writing.release()
        self._room.release()

    async def _write_and_commit(self, prepared: Any) -> None:
        try:
            try:
                written = await self._threads.run(self._engine.write_letters, prepared)
            finally:
                self._writing.release()
            # Locks are fair: whoever asks first has them first.
            async with self._committing:
                await self._threads.run(self._engine.commit, written)
        finally:
            self._room.release()


def assemble(
    engine: Engine, settings: Settings, listening: socket.socket | None = None, beside: Iterable[HttpServer] = ()
) -> faust.App:
    """Build the Faust app around an engine; serve health and metrics on `listening` where given, and the servers `beside`."""
    app = _App(
        settings.app_id, broker="kafka://unused", datadir=str(settings.data_dir / "faust"), web_enabled=False,
        topic_disable_leader=True, topic_allow_declare=False, worker_redirect_stdouts=False,
    )  # fmt: skip
    letters = app.channel(maxsize=_AHEAD)
    threads = _Threads(app, engine)
    taking = _Intake(app, threads, engine)

    @app.agent(letters, name="intake")
    async def intake(batches: AsyncIterable[Any]) -> None:
        async for batch in batches:
            await taking.take_in(batch)

    def hand_over(batch: Any) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(letters.put(batch), app.loop)

    folding = _Folding(app, threads, engine)

    def close_shards() -> None:
        folding.await_folds()
        engine.close_shards()

    @app.task
    async def sweep() -> None:
        # A timer that can sleep for longer: forty ticks a second are most of what an idle worker takes.
        async for _ in app.itertimer(settings.sweep_interval_ms / 1_000, name="sweep", sleep=threads.rest_between_sweeps):
            threads.sweep()

    @app.timer(_CHECK_EVERY_S)
    async def check_engine() -> None:
        await threads.run(engine.run_checks)

    beside = list(beside)
    pages, (host, port) = Http(partial(_health, engine, beside), engine.metrics.render_metrics), settings.http_host_port()
    services: list[Any] = [
        _HangUp(engine.ask_for_policies),
        _Endpoint(HttpServer(pages.app, "http", host, port, hosts=settings.http_hosts, listening=listening)),
        *map(_Endpoint, beside),
        _Feed(engine.read_lineages, engine.close_lineages, hand_over),
        _Feed(engine.read_letters, engine.close_letters, hand_over),
        _Feed(engine.read_changelog, close_shards, folding.submit_portions),
    ]
    for service in services:
        app.service(service)
    return app


def _health(engine: Engine, beside: Iterable[HttpServer]) -> tuple[bool, dict[str, object]]:
    ready, about = engine.health()
    certificates = {server.name: server.certificate.trouble() or "ok" for server in beside if server.certificate}
    return ready, {**about, "certificates": certificates} if certificates else about


def run(
    engine: Engine, settings: Settings, listening: socket.socket | None = None, beside: Iterable[HttpServer] = (),
    logs: dict[str, Any] | None = None,
) -> None:
    """Run until SIGTERM or SIGINT, then hand over; ends the process. It logs by `logs`, for `logging.config`.

    Health and metrics are served on `listening`, or the address of the settings, and `beside` it what else is.
    """
    start.calm_collector()
    # A thread of its own: the loop that runs everything else may be what stands still.
    threading.Thread(target=engine.watchdog.run, name="watchdog", daemon=True).start()
    threading.Thread(target=engine.rounds.run, name="rounds", daemon=True).start()
    sys.setswitchinterval(_SWITCH_S)
    logs = logs or build_logging(settings.log_format, settings.log_level)
    _Worker(assemble(engine, settings, listening, beside), engine, logs).execute_from_commandline()
