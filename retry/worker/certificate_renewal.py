"""Files of certificates that were replaced come into use without an operator: what every process of the service does about that.

    with renew_on_change(settings, would_start) as certificate:
        …  # make clients, and serve until told to end
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from prometheus_client import CollectorRegistry

from retry.kafka import client_config
from retry.kafka.certificate_watch import CertificateWatch
from retry.kafka.interface import AdminClient
from retry.settings import Settings
from retry.telemetry import prometheus
from retry.worker.periodic import PeriodicTask, PeriodicTasks
from retry.worker.self_restart import THIS_PROCESS

_EVERY_S = 5.0


@contextmanager
def renew_on_change(settings: Settings, would_start: Callable[[AdminClient], object]) -> Iterator[CertificateWatch]:
    """Around all that a process does: it is begun anew when the files that its clients read are others, and can be used.

    Args:
      would_start: sees whether this command would start now, as whom the files say. Raises what says why not.
    """
    watch = CertificateWatch(settings, partial(client_config.try_newest, settings, would_start), THIS_PROCESS.request_restart)
    if watch.files:
        looks = PeriodicTasks([PeriodicTask(_EVERY_S, watch.check_files)])
        threading.Thread(target=looks.run, name="certificates", daemon=True).start()
    with THIS_PROCESS.at_the_end():
        yield watch


def register_gauges(watch: CertificateWatch, registry: CollectorRegistry) -> None:
    """Tell Prometheus when the certificate in use is valid."""
    prometheus.gauge(registry, "retry_client_certificate_begins_seconds", lambda: watch.shown.begins_s)
    prometheus.gauge(registry, "retry_client_certificate_ends_seconds", lambda: watch.shown.ends_s)
