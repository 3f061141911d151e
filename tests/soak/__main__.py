"""`python -m tests.soak [--minutes 60]`: load and faults for so long, then `retry verify`; a line in docs/evidence/soak.md."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from retry.clock import wall_ms
from retry.kafka.local_broker import LocalBroker
from tests.soak import result
from tests.soak.downstream import Downstream
from tests.soak.faults import Faults
from tests.soak.load import Load
from tests.support.deployment import ROOT, Deployment
from tests.support.reading import QUIET

WORKERS = ("a", "b")
POLICY = "{backoff: {kind: exponential, delay: 3s, factor: 2, max_delay: 20s}, jitter: full, max_attempts: 5}"


def main() -> int:
    """Run; 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="of load and faults")
    parser.add_argument("--rate", type=float, default=300.0, help="letters a second, besides those that fail again")
    parser.add_argument("--fails", type=float, default=0.1, help="part of all retries that fail again")
    parser.add_argument("--seed", type=int, default=wall_ms() % 1_000_000, help="of the faults and of the letters")
    parser.add_argument("--output", type=Path, default=ROOT / "docs/evidence/soak.md", help="where the line of result goes")
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    # A broker that is killed every few minutes is no news.
    QUIET.setLevel("CRITICAL")
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        LocalBroker(Path(folder) / "broker", heap_mb=768, brief=False) as broker,
    ):
        return soak(asked, Path(folder), broker)


def soak(asked: argparse.Namespace, folder: Path, broker: LocalBroker) -> int:
    """One run on a broker of its own."""
    began_ms = wall_ms()
    topics = {"one": 1, "three": 3, "six": 6}
    deployment = Deployment(broker.bootstrap_servers, folder / "deployment", topics, shards=6, defaults=POLICY).prepare()
    workers = [deployment.worker(name).start() for name in WORKERS]
    try:
        for worker in workers:
            worker.await_ready()
        load, downstream = Load(deployment, asked.rate, asked.seed), Downstream(deployment, asked.fails)
        faults = Faults(deployment, broker, workers, asked.seed)
        try:
            faults.go_on(asked.minutes * 60)
            faults.supervise()
            faults.resume()
        finally:
            load.finish()
        print(f"{load.acknowledged:,} letters sent; faults: {dict(faults.done)}", flush=True)
        result.drain(deployment, downstream)
        downstream.close()
        for worker in workers:
            worker.terminate(30.0)
        found = result.verify(deployment)
    finally:
        deployment.close()
    print(found, flush=True)
    print(result.write(asked.output, began_ms, load, downstream, faults, found))
    if wrong := result.wrong(found):
        print(f"NOT as promised: {wrong}; repeat with --seed {asked.seed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
