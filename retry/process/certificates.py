"""Files of certificates and keys that were replaced come into use without an operator, in every process of the service."""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from retry import clock
from retry.errors import RetryError
from retry.kafka import client_config
from retry.kafka.connection import CERTIFICATE, FILES, KEYSTORE
from retry.kafka.interface import AdminClient, KafkaException
from retry.process.periodic import PeriodicTask, PeriodicTasks
from retry.process.self_restart import THIS_PROCESS
from retry.reloaded_file import hash_files
from retry.settings import Settings
from retry.telemetry import prometheus

# Whether the files by which brokers and this process know each other were replaced, and when those that are new come into use.
#
# Clients read them when they are made. So what a process was started with is what it goes by, and a change takes an orderly end
# and a start: at a moment that each process draws by itself, so that a fleet does not do so all at once, and while the
# certificate that it shows is still valid. Files with which a start would fail change nothing.

log = logging.getLogger(__name__)

# Brokers may be away, and a right may be granted later.
_AGAIN_S = 30.0
_DELAY_S_MAX, _PARTS_OF_WHAT_IS_LEFT = 300.0, 4
_PEM = "ssl.certificate.pem"
_MS = 1_000


class Validity(NamedTuple):
    """From when to when a certificate is valid, in seconds since 1970."""

    begins_s: float
    ends_s: float


FOR_EVER = Validity(0.0, math.inf)


def choose_delay_s(left_s: float, drawn: float) -> float:
    """Choose how many seconds a process waits before it uses new files.

    At most five minutes, and at most a quarter of what its certificate has left; `drawn`, from 0 to 1, differs by process.

    >>> choose_delay_s(math.inf, 0.5), choose_delay_s(60.0, 0.5), choose_delay_s(-1.0, 0.5)
    (150.0, 7.5, 0.0)
    """
    return drawn * max(0.0, min(_DELAY_S_MAX, left_s / _PARTS_OF_WHAT_IS_LEFT))


class CertificateWatch:
    """The files as they were when this was made, which is before the first client is; for one thread.

    Args:
      would_start: sees whether a process that starts now gets on. Raises what says why not.

    Attributes:
      files: what is watched; none where no client reads any.
      shown: when the certificate that this process shows is valid; for ever where it shows none, or one that cannot be read.
    """

    def __init__(
        self, settings: Settings, would_start: Callable[[], object], renew: Callable[[], object],
        draw: Callable[[], float] = random.random,
    ) -> None:  # fmt: skip
        self.files = list_watched(settings)
        self._would_start, self._renew, self._draw = would_start, renew, draw
        self._began_with = hash_files(self.files)
        self.shown = _validity(settings.kafka) if _speaks_tls(settings.kafka) else FOR_EVER
        self._refused, self._why, self._again = b"", "", clock.Interval(_AGAIN_S)
        self._due: clock.Deadline | None = None
        self._is_over = False

    def check_files(self) -> None:
        """Read the files, try what is new in them, and renew this process when its moment has come; every few seconds."""
        held = hash_files(self.files)
        if self._is_over or not self._is_to_try(held):
            return
        try:
            self._would_start()
        except (RetryError, KafkaException, TimeoutError) as error:
            self._note_refusal(held, str(error))
            return
        self._refused = b""
        due = self._due = self._due or self._draw_deadline()
        if due.has_passed():
            log.info("begins anew with the files that it was waiting to use: %s", self._format_files())
            self._is_over = True
            self._renew()

    def _is_to_try(self, held: bytes) -> bool:
        if held == self._began_with:
            # Nothing is new, or what was there at the start is back.
            self._refused, self._due = b"", None
            return False
        if held == self._refused:
            return self._again.is_due()
        return self._due is None or self._due.has_passed()

    def _note_refusal(self, held: bytes, why: str) -> None:
        if (held, why) != (self._refused, self._why):
            log.warning(
                "%s have changed and are not used yet: %s; what this process began with stays in use, and they are tried again "
                "every %.0f s", self._format_files(), why, _AGAIN_S,
            )  # fmt: skip
        self._refused, self._why, self._due = held, why, None
        self._again.restart()

    def _draw_deadline(self) -> clock.Deadline:
        seconds = choose_delay_s(self.shown.ends_s - clock.wall_ms() / _MS, self._draw())
        log.info("%s have changed and can be used: this process ends and begins anew in %.0f s", self._format_files(), seconds)
        return clock.Deadline(seconds)

    def _format_files(self) -> str:
        return ", ".join(map(str, self.files))


def list_watched(settings: Settings) -> list[Path]:
    """List the files of certificates and keys that clients read; none where they do not speak TLS."""
    kinds = [settings.kafka, settings.kafka_consumer, settings.kafka_producer]
    if not any(map(_speaks_tls, kinds)):
        return []
    named = [properties[name] for properties in kinds for name in FILES if properties.get(name)]
    return [Path(name) for name in dict.fromkeys(named)]


def _speaks_tls(properties: Mapping[str, str]) -> bool:
    return "ssl" in properties.get("security.protocol", "").lower()


def _validity(kafka: Mapping[str, str]) -> Validity:
    """Read when the certificate that clients show is valid; `FOR_EVER` where there is none, or it cannot be read."""
    if not any(kafka.get(name) for name in (CERTIFICATE, KEYSTORE, _PEM)):
        return FOR_EVER
    # A fifth of a second of a start, which only those take who have certificates.
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        if place := kafka.get(CERTIFICATE):
            shown = x509.load_pem_x509_certificate(Path(place).read_bytes())
        elif place := kafka.get(KEYSTORE):
            store = pkcs12.load_pkcs12(Path(place).read_bytes(), kafka.get("ssl.keystore.password", "").encode())
            shown = store.cert.certificate  # type: ignore[union-attr]
        else:
            shown = x509.load_pem_x509_certificate(kafka[_PEM].encode())
    except (OSError, ValueError, TypeError, AttributeError, UnsupportedAlgorithm):
        # What cannot be used is refused by the first client, by the name of its setting.
        return FOR_EVER
    return Validity(shown.not_valid_before_utc.timestamp(), shown.not_valid_after_utc.timestamp())


# Files of certificates that were replaced come into use without an operator: what every process of the service does about that.
#
#     with renew_on_change(settings, would_start) as certificate:
#         …  # make clients, and serve until told to end

_EVERY_S = 5.0


@contextmanager
def renew_on_change(settings: Settings, would_start: Callable[[AdminClient], object]) -> Iterator[CertificateWatch]:
    """Watch the files that clients read during the `with` block; begin the process anew when they change and can be used.

    `would_start` sees whether this command would start now, as whom the files say; it raises what says why not.
    """
    watch = CertificateWatch(settings, partial(client_config.try_newest, settings, would_start), THIS_PROCESS.request_restart)
    if watch.files:
        looks = PeriodicTasks([PeriodicTask(_EVERY_S, watch.check_files)])
        threading.Thread(target=looks.run, name="certificates", daemon=True).start()
    with THIS_PROCESS.restart_at_end():
        yield watch


def register_gauges(watch: CertificateWatch, registry: CollectorRegistry) -> None:
    """Tell Prometheus when the certificate in use is valid, and what every process tells."""
    prometheus.add_process_metrics(registry)
    prometheus.gauge(registry, "retry_client_certificate_begins_timestamp_seconds", lambda: watch.shown.begins_s)
    prometheus.gauge(registry, "retry_client_certificate_ends_timestamp_seconds", lambda: watch.shown.ends_s)
