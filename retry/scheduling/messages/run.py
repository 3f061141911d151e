"""A scheduler as a process: the worker's loop, with the REST API beside it."""

from __future__ import annotations

import logging.config
from collections.abc import Iterable
from functools import partial
from itertools import chain

from retry import worker
from retry.engine import Engine
from retry.kafka import clients, topics
from retry.reasons import Reason
from retry.scheduler import service
from retry.scheduler.decoder import decoded
from retry.scheduler.history import history
from retry.scheduler.info import info
from retry.scheduler.logs import logging_of
from retry.scheduler.rest import Rest, Sources
from retry.scheduler.search import Query
from retry.scheduler.settings import SchedulerSettings
from retry.scheduler.view import Shown
from retry.scheduler.waiting import waiting


def run(settings: SchedulerSettings, *, adopt: bool = False) -> None:
    """Run until SIGTERM or SIGINT; ends the process.

    Raises:
      as `retry.scheduler.service.build`.
    """
    logs = logging_of(settings)
    logging.config.dictConfig(logs)
    engine = service.build(settings, adopt=adopt)
    decode = partial(decoded, settings.decoder) if settings.decoder else None
    rest = Rest(_sources(settings, engine), partial(info, settings), partial(_alive, engine), settings.worker.app_id, decode)
    served = worker.Served(rest, settings.server.host, settings.server.port)
    worker.run(engine, settings.worker, beside=[served], logs=logs)


def _sources(settings: SchedulerSettings, engine: Engine) -> Sources:
    parked = topics.names(settings.worker.app_id).parked
    admin, reader = clients.admin(settings.worker), clients.reader_config(settings.worker)

    def schedules(wanted: Query) -> Iterable[Shown]:
        return waiting(chain(engine.shards(), engine.copies()), parked, wanted)

    def live(wanted: Query) -> Iterable[Shown]:
        return waiting(engine.shards(), parked, wanted)

    return Sources(schedules, live, lambda _wanted: history(admin, reader, settings.history))


def _alive(engine: Engine) -> bool:
    """Whether it gets on. Brokers that do not answer are no reason to start it again."""
    return all(held.reason is not Reason.STALLED for held in engine.watchdog.held())
