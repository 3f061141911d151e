"""The Faust shell: two agents on channels, one timer, and the services that feed the channels.

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
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

import faust
from faust.app.base import BootStrategy
from mode import Service

from retry import clock
from retry.errors import RetryError
from retry.http_server import HttpServer
from retry.settings import Settings
from retry.worker import process_tuning
from retry.worker.engine import Engine
from retry.worker.health_server import Http
from retry.worker.logs import LOGGING
from retry.worker.self_restart import THIS_PROCESS
from retry.worker.shards.joint_sweep import AT_ONCE
from retry.worker.shutdown import end_without_brokers

log = logging.getLogger(__name__)

# Batches that wait in a channel; a full one stops the reading thread, and that is all the back-pressure there is.
_AHEAD = 1
# Batches of letters that are written or committed: a transaction each, see `retry.intake.overlapping_transactions`.
_UNDER_WAY = 2
_THREADS = 16
# A batch is worked out in one go of some 50 ms; handing the interpreter around every 5 ms makes intake a tenth slower.
_SWITCH_S = 0.01
_LOOK_S = 0.5


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
        THIS_PROCESS.stops_by(lambda: self.loop.call_soon_threadsafe(self._leave, signal.SIGTERM))

    def _schedule_shutdown(self, signal: signal.Signals) -> None:
        THIS_PROCESS.told_to_end()
        self._leave(signal)

    def _leave(self, signal: signal.Signals) -> None:
        if not self._signal_stop_time:
            threading.Thread(target=end_without_brokers, args=[self._brokers_answer], name="shutdown", daemon=True).start()
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
    """Reads in a thread of its own and puts what it reads on a channel, waiting while that is full.

    It stops before the agents do, so that what it read can still be taken in while it leaves its group.
    """

    def __init__(self, read: Callable[[], Any], close: Callable[[], None], channel: faust.ChannelT[Any]) -> None:
        super().__init__()
        self._read, self._close, self._channel = read, close, channel
        self._thread = ThreadPoolExecutor(1, "feed")

    @Service.task
    async def _pump(self) -> None:
        loop = asyncio.get_running_loop()
        while not self.should_stop:
            batch = await loop.run_in_executor(self._thread, self._read)
            if batch:
                await self._channel.put(batch)

    async def on_stop(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)


class _Endpoint(Service):
    """Serves pages; stopped last, so that a worker that is closing can be looked at."""

    def __init__(self, server: HttpServer) -> None:
        super().__init__()
        self._server = server

    async def on_start(self) -> None:
        self._server.start()

    async def on_stop(self) -> None:
        await asyncio.to_thread(self._server.stop)


class _HangUp(Service):
    """SIGHUP."""

    def __init__(self, hang_up: Callable[[], None]) -> None:
        super().__init__()
        self._hang_up = hang_up

    async def on_start(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hang_up)


for _service in (_App, _Feed, _Endpoint, _HangUp):
    # Starting and stopping of services is of no interest to operators.
    _service.logger = logging.getLogger("mode.services")


def _logging_failure(step: Callable[[Any], Any], argument: Any) -> Any:
    """Do a step, and log what nobody expected: the event loop makes another `TimeoutError` of one, without a traceback."""
    try:
        return step(argument)
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
        self._folds, self._quiet_until_s = 0, 0.0
        self._folded = asyncio.Event()

    async def run(self, step: Callable[[Any], Any], argument: Any) -> Any:
        """One step; a crash is safe at any point, since a restart finds everything in Kafka."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, _logging_failure, step, argument)
        except Exception as error:
            await self._app.crash(error)
            raise

    def sweep(self) -> None:
        """Begin a sweep, unless nothing can be due yet; beside another one only where there is much to do."""
        if clock.monotonic_s() < self._quiet_until_s:
            return
        self._sweeps = {sweeping for sweeping in self._sweeps if not sweeping.done()}
        if len(self._sweeps) < (AT_ONCE if self._engine.much_is_due else 1):
            self._sweeps.add(self._app.add_future(self._sweep()))

    async def _sweep(self) -> None:
        folds = self._folds
        quiet_s = await self.run(lambda engine: engine.sweep_and_rest(), self._engine)
        if quiet_s:
            # What was folded meanwhile may be due sooner.
            self._quiet_until_s = clock.monotonic_s() + quiet_s if self._folds == folds else 0.0

    def folded(self) -> None:
        """Something new is in the tables, and may be due."""
        self._folds, self._quiet_until_s = self._folds + 1, 0.0
        self._folded.set()

    async def rest(self, seconds: float) -> None:
        """Wait so long between two sweeps; longer where nothing can be due before, until something is folded."""
        quiet_s = self._quiet_until_s - clock.monotonic_s()
        if quiet_s <= seconds:
            await asyncio.sleep(seconds)
            return
        self._folded.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._folded.wait(), quiet_s)


class _Intake:
    """Takes batches of letters in by three stages: prepare, write, commit; each has one batch at a time, in their order.

    While one batch is committed, the next is written and the one after that prepared. More are not in memory.
    """

    def __init__(self, app: faust.App, threads: _Threads, engine: Engine) -> None:
        self._app, self._threads, self._engine = app, threads, engine
        self._room, self._writing, self._committing = asyncio.Semaphore(_UNDER_WAY), asyncio.Lock(), asyncio.Lock()

    async def take_in(self, batch: Any) -> None:
        """Prepare a batch, and wait for its turn to be written; from then on it goes on by itself."""
        prepared = await self._threads.run(self._engine.prepare, batch)
        await self._room.acquire()
        await self._writing.acquire()
        self._app.add_future(self._write_and_commit(prepared))

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
    """The Faust app around an engine; health and metrics on `listening` where that is given, and some servers more."""
    app = _App(
        settings.app_id,
        broker="kafka://unused",
        datadir=str(settings.data_dir / "faust"),
        web_enabled=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        worker_redirect_stdouts=False,
    )
    letters, changelog = app.channel(maxsize=_AHEAD), app.channel(maxsize=_AHEAD)
    threads = _Threads(app, engine)
    taking = _Intake(app, threads, engine)

    @app.agent(letters, name="intake")
    async def intake(batches: AsyncIterable[Any]) -> None:
        async for batch in batches:
            await taking.take_in(batch)

    @app.agent(changelog, name="table")
    async def table(portions: AsyncIterable[Any]) -> None:
        async for portion in portions:
            await threads.run(engine.fold, portion)
            threads.folded()

    @app.task
    async def sweep() -> None:
        # A timer that can sleep for longer: forty ticks a second are most of what an idle worker takes.
        async for _ in app.itertimer(settings.sweep_interval_ms / 1_000, name="sweep", sleep=threads.rest):
            threads.sweep()

    @app.timer(_LOOK_S)
    async def look() -> None:
        await threads.run(engine.look, None)

    beside = list(beside)
    pages, (host, port) = Http(partial(_health, engine, beside), engine.metrics.text), settings.http_host_port()
    services: list[Any] = [
        _HangUp(engine.ask_for_policies),
        _Endpoint(HttpServer(pages.app, "http", host, port, hosts=settings.http_hosts, listening=listening)),
        *map(_Endpoint, beside),
        _Feed(engine.read_lineages, engine.close_lineages, letters),
        _Feed(engine.read_letters, engine.close_letters, letters),
        _Feed(engine.read_changelog, engine.close_shards, changelog),
    ]
    for service in services:
        app.service(service)
    return app


def _health(engine: Engine, beside: Iterable[HttpServer]) -> tuple[bool, dict[str, object]]:
    """What the engine says of itself, and what is to be said of the certificates of what is served beside it."""
    ready, about = engine.health()
    certificates = {server.name: server.certificate.trouble() or "ok" for server in beside if server.certificate}
    return ready, {**about, "certificates": certificates} if certificates else about


def run(
    engine: Engine, settings: Settings, listening: socket.socket | None = None, beside: Iterable[HttpServer] = (),
    logs: dict[str, Any] = LOGGING,
) -> None:
    """Run until SIGTERM or SIGINT, then hand over; ends the process.

    Args:
      listening: where health and metrics are served; else on the address of the settings.
      beside: what else is served.
      logs: how it logs, for `logging.config`.
    """
    process_tuning.calm_collector()
    # A thread of its own: the loop that runs everything else may be what stands still.
    threading.Thread(target=engine.watchdog.run, name="watchdog", daemon=True).start()
    threading.Thread(target=engine.rounds.run, name="rounds", daemon=True).start()
    sys.setswitchinterval(_SWITCH_S)
    _Worker(assemble(engine, settings, listening, beside), engine, logs).execute_from_commandline()
