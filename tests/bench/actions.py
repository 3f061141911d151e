"""How fast the owner of one shard works off an action, and how late another team's letters are beside it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

from retry import settings as environment
from retry.kafka import client_config
from retry.operations.act.audit import Audit, AuditRecord

from . import herd, spread, waiting
from .figures import Figure
from .letters import Incorrect, fill
from .service import Service, now_ms
from .worker import ROOT

SETTINGS = {"RETRY_SHARDS": "1"}
_HOUR_MS = 3_600_000
# None of them is due before the end: what is measured is the action, not what it has sent.
_LATER = ("--postpone", "2h")
_COMMAND_S = 600.0
_FILLED_PER_S = 2_000
_PARKED = [("exception-class", b"com.example.ValidationException")]


def actions(service: Service, letters: int) -> list[Figure]:
    """Move letters that wait, discard them, and return letters that are parked, each beside 200 letters/s of another team.

    Raises:
      Incorrect: not every letter was acted on, or another team's letter did not come back exactly once.
    """
    service.warmed()
    soon_ms = now_ms() + _HOUR_MS
    waiting.fill(service, letters, waiting.scattered(letters, soon_ms, _HOUR_MS))
    service.until_waiting(letters, 60 + letters / _FILLED_PER_S)
    of_waiting = f"team:{herd.TEAM}"
    return [
        *measure_action(service, letters, "moved", "retry", of_waiting, *_LATER),
        *measure_action(service, letters, "discarded", "discard", of_waiting),
        *measure_returned(service, letters),
    ]


def measure_returned(service: Service, letters: int) -> list[Figure]:
    service.headers = [*service.headers, *_PARKED]
    sent = service.worker.metric("retry_entries_sent_total")
    fill(service.bootstrap, service.letters, range(letters), now_ms(), headers=service.headers)
    # Taken in they are due at once, and rest in their parking topic when they are sent there.
    parked = lambda: service.worker.metric("retry_entries_sent_total") >= sent + letters  # noqa: E731
    service.worker.until(f"{letters:,} parked letters", parked, 60 + letters / _FILLED_PER_S, 0.05)
    return measure_action(service, letters, "returned", "retry", "state:parked", *_LATER)


def measure_action(service: Service, letters: int, name: str, *words: str) -> list[Figure]:
    began_ms = now_ms()
    other = herd.Trickle(service, time.time())
    _ask(service, letters, *words)
    from_s, to_s, rate = _rate(service, letters, began_ms)
    count = other.end()
    service.reader.await_count(count, 60, service.worker.running)
    of_other = service.reader.batches
    service.check_retries(count)
    service.reader.forget()
    late_ms, _ = spread.late_ms(of_other)
    return [
        Figure(f"{name}, rate", rate, "letters/s"),
        Figure(f"{name}, first to last", to_s - from_s, "s"),
        Figure(f"{name}, other team's lateness, p99", spread.find_quantile(late_ms, 0.99), "ms"),
    ]


def _ask(service: Service, letters: int, *words: str) -> None:
    command = [sys.executable, "-m", "retry", "act", *words, "--no-ramp", "--yes", "--expect", str(letters), "--json"]
    if words[0] != "retry":
        command.remove("--no-ramp")
    ended = subprocess.run(
        command, env=service.environment, cwd=ROOT, capture_output=True, text=True, timeout=_COMMAND_S, check=False
    )
    if ended.returncode or json.loads(ended.stdout)["done"] != letters:
        raise Incorrect(f"{' '.join(words)} ended with {ended.returncode}: {ended.stdout[-500:]} {ended.stderr[-500:]}")


def _rate(service: Service, letters: int, since_ms: int) -> tuple[float, float, float]:
    """When the first and the last slice were done, by the audit, and letters a second between."""
    slices = sorted((record.at_ms, len(record.letters)) for record in read_audit(service, since_ms))
    if sum(count for _, count in slices) != letters:
        raise Incorrect(f"the audit has {sum(count for _, count in slices):,} of {letters:,} letters")
    first, last = slices[0], slices[-1]
    took_s = max(1, last[0] - first[0]) / 1_000
    after_first = sum(count for at_ms, count in slices if at_ms > first[0])
    return first[0] / 1_000, last[0] / 1_000, after_first / took_s


def read_audit(service: Service, since_ms: int) -> Iterator[AuditRecord]:
    settings = environment.read_settings(service.environment)
    return Audit(settings, client_config.connect_admin(settings)).read_records(since_ms)
