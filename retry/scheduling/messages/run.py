"""Runs a scheduler as a process: the worker's loop, with the REST API beside it."""

from __future__ import annotations

from functools import partial
from itertools import chain

from retry.http_server.certificate import Certificate
from retry.kafka import topics
from retry.kafka.interface import AdminClient
from retry.process.certificates import register_gauges, renew_on_change
from retry.process.logs import configure_logs
from retry.scheduling.messages import composition
from retry.scheduling.messages.rest_api import ScheduleSources, build_rest_server, read_rest_certificate
from retry.scheduling.messages.search import iterate_waiting, read_sent_schedules
from retry.scheduling.messages.settings import SchedulerSettings, build_scheduler_logging
from retry.telemetry.health import Reason
from retry.worker import faust_app
from retry.worker.composition import demand_startable
from retry.worker.engine import Engine


def run(settings: SchedulerSettings, *, adopt: bool = False) -> None:
    """Run until SIGTERM or SIGINT; ends the process. Raises as `retry.scheduling.messages.composition.build`."""
    logs = build_scheduler_logging(settings)
    configure_logs(logs)
    certificate = read_rest_certificate(settings)
    with renew_on_change(settings.worker, partial(_demand_startable, settings, certificate)) as of_client:
        engine = composition.build(settings, adopt=adopt)
        register_gauges(of_client, engine.metrics.registry)
        rest = build_rest_server(
            settings, _sources(settings, engine), partial(_alive, engine), settings.worker.app_id, certificate
        )
        faust_app.run(engine, settings.worker, beside=[rest], logs=logs)


def _demand_startable(settings: SchedulerSettings, certificate: Certificate | None, admin: AdminClient) -> None:
    demand_startable(composition.remove_policies(settings), admin)
    if certificate:
        certificate.check_usable()


def _sources(settings: SchedulerSettings, engine: Engine) -> ScheduleSources:
    parked = topics.build_topic_names(settings.worker.app_id).parked
    return ScheduleSources(
        schedules=lambda query: iterate_waiting(chain(engine.list_open_shards(), engine.list_standbys()), parked, query),
        live=lambda query: iterate_waiting(engine.list_open_shards(), parked, query),
        history=lambda _query: read_sent_schedules(settings.worker, settings.history),
    )


def _alive(engine: Engine) -> bool:
    """Whether no part of it stalls. Brokers that do not answer are no reason to start it again."""
    return all(check.reason is not Reason.STALLED for check in engine.watchdog.list_blocked())
