"""Health and metrics of several workers as one page each: ready if all that have shards are, metrics by the label `process`."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

_ASK_S = 2.0
_MISSING = {"ready": False, "shards": {}, "not_ready": [{"shard": None, "reason": "starting", "why": "it does not answer"}]}


class SupervisorHealth:
    """Asks each worker when it is asked itself.

    Args:
      ports: where the workers listen on loopback.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def health(self) -> tuple[bool, dict[str, object]]:
        """Return whether the workers are ready, and details for `Http`; what each worker says is under `processes`."""
        told = [self._health_of(port) for port in self._ports]
        # One that has no shard, since there are too few, is not ready by itself, and nothing waits for it.
        idle = [not each["ready"] and each.get("shards_owned") == 0 and not each["not_ready"] for each in told]
        ready = any(each["ready"] for each in told) and all(each["ready"] or idle[n] for n, each in enumerate(told))
        shards = {number: phase for each in told for number, phase in each["shards"].items()}
        not_ready = [{"process": n, **why} for n, each in enumerate(told) for why in each["not_ready"]]
        about = {"shards": shards, "not_ready": not_ready, "processes": {str(n): each for n, each in enumerate(told)}}
        return ready, {"ready": ready, **about}

    def metrics(self) -> bytes:
        """Render the metrics of all workers as one page."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Every metric of every worker that answers; what prometheus_client asks for."""
        found: dict[str, Metric] = {}
        for number, port in enumerate(self._ports):
            for family in text_string_to_metric_families((_ask_worker(port, "/metrics") or b"").decode()):
                metric = found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    labels = {**sample.labels, "process": str(number)}
                    metric.samples.append(sample._replace(labels=labels))
        yield from found.values()

    def _health_of(self, port: int) -> dict[str, Any]:
        answer = _ask_worker(port, "/health/ready")
        return orjson.loads(answer) if answer else _MISSING


def _ask_worker(port: int, path: str) -> bytes | None:
    """Return what a worker answers, whatever the status; None where it gives no answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=_ASK_S) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as refused:
        return refused.read()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None
