"""A scheduler as a process: the worker's loop, with the REST API beside it."""

from __future__ import annotations

import logging.config
from collections.abc import Iterable
from functools import partial
from itertools import chain

from retry.worker import faust_app
from retry.worker.engine import Engine
from retry.kafka import client_config, topics
from retry.telemetry.health import Reason
from retry.scheduling.messages import composition
from retry.scheduling.messages.body_decoder import decoded
from retry.scheduling.messages.history import history
from retry.scheduling.messages.info import info
from retry.scheduling.messages.logs import logging_of
from retry.scheduling.messages.rest_api import Rest, Sources
from retry.scheduling.messages.search import Query
from retry.scheduling.messages.settings import SchedulerSettings
from retry.scheduling.messages.schedule_json import Shown
from retry.scheduling.messages.waiting import waiting


def run(settings: SchedulerSettings, *, adopt: bool = False) -> None:
    """Run until SIGTERM or SIGINT; ends the process.

    Raises:
      as `retry.scheduling.messages.composition.build`.
    """
    logs = logging_of(settings)
    logging.config.dictConfig(logs)
    engine = composition.build(settings, adopt=adopt)
    decode = partial(decoded, settings.decoder) if settings.decoder else None
    rest = Rest(_sources(settings, engine), partial(info, settings), partial(_alive, engine), settings.worker.app_id, decode)
    served = faust_app.Served(rest, settings.server.host, settings.server.port)
    faust_app.run(engine, settings.worker, beside=[served], logs=logs)


def _sources(settings: SchedulerSettings, engine: Engine) -> Sources:
    parked = topics.names(settings.worker.app_id).parked
    admin, reader = client_config.admin(settings.worker), client_config.reader_config(settings.worker)

    def schedules(wanted: Query) -> Iterable[Shown]:
        return waiting(chain(engine.shards(), engine.copies()), parked, wanted)

    def live(wanted: Query) -> Iterable[Shown]:
        return waiting(engine.shards(), parked, wanted)

    return Sources(schedules, live, lambda _wanted: history(admin, reader, settings.history))


def _alive(engine: Engine) -> bool:
    """Whether it gets on. Brokers that do not answer are no reason to start it again."""
    return all(held.reason is not Reason.STALLED for held in engine.watchdog.held())
