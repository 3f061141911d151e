"""The Faust shell: two agents on channels, one timer, and the services that feed the channels. The only importer of faust.

Faust hosts; librdkafka carries. The app runs with Kafka off, which takes three things: no wait for the recovery of tables
that it does not have, its flow control opened by hand, and no web server of its own.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import faust
from faust.app.base import BootStrategy
from mode import Service

from retry.control.http import Http
from retry.engine import Engine
from retry.settings import Settings
from retry.shard import Shard

log = logging.getLogger(__name__)

# Batches that wait in a channel; a full one stops the reading thread, and that is all the back-pressure there is.
_AHEAD = 2


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


class _Feed(Service):
    """Reads in a thread of its own and puts what it reads on a channel, waiting while that is full.

    It stops before the agents do, so that what it read can still be taken in while it leaves its group.
    """

    def __init__(self, read: Callable[[], Any], close: Callable[[], None], channel: faust.Channel) -> None:
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
    """Health and metrics; stopped last, so that a worker that is closing can be looked at."""

    def __init__(self, http: Http, host: str, port: int) -> None:
        super().__init__()
        self._http, self._host, self._port = http, host, port

    async def on_start(self) -> None:
        await self._http.start(self._host, self._port)

    async def on_stop(self) -> None:
        await self._http.stop()


for _service in (_App, _Feed, _Endpoint):
    # Starting and stopping of services is of no interest to operators.
    _service.logger = logging.getLogger("mode.services")


def assemble(engine: Engine, settings: Settings) -> faust.App:
    """The Faust app around an engine."""
    app = _App(
        settings.app_id, broker="kafka://unused", datadir=str(settings.data_dir / "faust"), web_enabled=False,
        topic_disable_leader=True, topic_allow_declare=False, worker_redirect_stdouts=False,
    )  # fmt: skip
    letters, changelog = app.channel(maxsize=_AHEAD), app.channel(maxsize=_AHEAD)
    threads = ThreadPoolExecutor(16, "engine")

    async def run(step: Callable[[Any], None], argument: Any) -> None:
        """One blocking step in a thread. What the engine does not expect ends the process: a restart is always safe."""
        try:
            await asyncio.get_running_loop().run_in_executor(threads, step, argument)
        except Exception as error:
            log.exception("cannot go on")
            await app.crash(error)
            raise

    @app.agent(letters, name="intake")
    async def intake(batches: AsyncIterable[Any]) -> None:
        async for batch in batches:
            await run(engine.take, batch)

    @app.agent(changelog, name="table")
    async def table(portions: AsyncIterable[Any]) -> None:
        async for portion in portions:
            await run(engine.fold, portion)

    sweeps: dict[Shard, asyncio.Future[None]] = {}

    @app.timer(settings.sweep_interval_ms / 1_000)
    async def sweep() -> None:
        for shard in [shard for shard, done in sweeps.items() if done.done()]:
            del sweeps[shard]
        for shard in engine.shards():
            # A shard that is still busy holds up nobody but itself.
            if shard not in sweeps:
                sweeps[shard] = app.add_future(run(engine.sweep, shard))

    app.service(_Endpoint(Http(engine.health, engine.metrics.text), *settings.http_host_port()))
    app.service(_Feed(engine.read_letters, engine.close_letters, letters))
    app.service(_Feed(engine.read_changelog, engine.close_shards, changelog))
    return app


def run(engine: Engine, settings: Settings) -> None:
    """Run until SIGTERM or SIGINT, then hand over; ends the process."""
    # Batches are lists of thousands of short-lived tuples: collecting the youngest generation every 700 of them would
    # take longer than the work itself.
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
    faust.Worker(
        assemble(engine, settings), loglevel="INFO", logging_config=_LOGGING, redirect_stdouts=False
    ).execute_from_commandline()


_LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"level": "INFO", "handlers": ["stderr"]},
    "loggers": {"faust": {"level": "WARNING"}, "mode": {"level": "WARNING"}, "aiohttp": {"level": "WARNING"}},
}
