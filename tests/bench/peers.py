"""`make bench-peers`: the worker and a Kafka Streams service, the same work in turn on one broker, several times.

    python -m tests.bench.peers --peers DIRECTORY [--times 3] [--letters 200000] [--only NAME,...] [--keep FILE]

DIRECTORY has `harness/bench.py`, which measures whatever an adapter describes, and `kafka-streams/`, which is copied and built
here (a JDK and Maven). Both sides read committed records; the peer runs with exactly_once_v2, the worker with settings as they
come. Each turn has fresh topics, application id and state. Who goes first changes from turn to turn. Letters are plain, or Spring
Kafka's: ten headers more, of which one is a stack trace of 3 KB. Where few letters come, what counts is what application and
broker use for it meanwhile.

Every run is one line of FILE, and what is there already is not run again, so a measurement that was cut off goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from retry.kafka.local_broker import HOST, LocalBroker, free_port

from . import low_rates, machine
from .arguments import some
from .low_rates import RequestCounts
from .ratios import PEER, US, compared, table

_HERE = Path(__file__).parent
_BUILT = Path("build") / "peers"
# Partitions of the dead-letter topic, and whose letters.
_TESTS = {
    "ingest_fire": (1, "plain"), "ingest_fire/spring": (1, "spring"), "drain": (1, "plain"), "drain/spring": (1, "spring"),
    "trickle": (1, "plain"), "trickle/spring": (1, "spring"), "restore": (1, "plain"), "kill": (1, "plain"),
    "ingest_fire/4": (4, "plain"), "drain/4": (4, "plain"),
    "low/10": (4, "plain"), "low/100": (4, "plain"), "low/1000": (4, "plain"),
}  # fmt: skip
_LOW, _LOW_S, _LOW_WARM, _DELAY_MAX_S = "low/", 60, 2_000, 5.0
_TIMEOUT_S = 400


def main() -> int:
    """Run what is missing, print the table; exit code 1 where a letter of ours was lost, came twice or a run failed."""
    asked = _arguments()
    if not (asked.peers / "harness" / "bench.py").is_file():
        print(f"{asked.peers}: no harness/bench.py there; say where the peers are: make bench-peers PEERS=…", file=sys.stderr)
        return 2
    adapters = {PEER: copy_adapter(asked.peers), US: _HERE / "adapter.json"}
    asked.keep.parent.mkdir(parents=True, exist_ok=True)
    asked.keep.touch()
    jmx_port = free_port()
    with (
        tempfile.TemporaryDirectory(prefix="retry-peers-") as work,
        LocalBroker(Path(work) / "broker", heap_mb=1_024, brief=False, jvm=_open_jmx(jmx_port)) as broker,
    ):
        for turn in range(asked.times):
            for name in asked.only:
                for system in (PEER, US) if turn % 2 == 0 else (US, PEER):
                    if _done(asked.keep, name, system) <= turn:
                        _run(asked, name, system, adapters[system], broker, jmx_port, Path(work))
    found = _lines(asked.keep)
    lines = compared(found)
    print(f"{machine.describe()}\n{asked.letters:,} letters, medians of {asked.times} turns\n\n{table(lines)}")
    wrong = [line for line in found if line["system"] == US and (line["lost"] or line["duplicates"] or line["problems"])]
    for line in wrong:
        print(f"FAILED {line['name']}: lost {line['lost']}, twice {line['duplicates']}, {line['problems']}")
    return bool(wrong)


def _run(
    asked: argparse.Namespace, name: str, system: str, adapter: Path, broker: LocalBroker, jmx_port: int, work: Path
) -> None:
    out, log = work / "line.jsonl", work / "harness.log"
    out.unlink(missing_ok=True)
    environment = {**os.environ, "BOOTSTRAP": broker.bootstrap_servers, "BENCH_WORK": str(work), "BROKER_PID": str(broker.pid)}
    print(f"{name}: {system}", file=sys.stderr, flush=True)
    command = [sys.executable, str(asked.peers / "harness" / "bench.py"), "--adapter", str(adapter), "--out", str(out)]
    command += _options(name, system, asked.letters)
    used: dict[str, float] = {}
    with log.open("wb") as output:
        harness = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            if name.startswith(_LOW):
                counts = RequestCounts(jmx_port)
                used = low_rates.sum_up(low_rates.watch(harness, broker.pid, counts), _LOW_S, _DELAY_MAX_S)
                counts.close()
            harness.wait(_TIMEOUT_S)
        finally:
            harness.kill()
    told: dict[str, Any] = json.loads(out.read_text().splitlines()[-1]) | used if out.is_file() else {}
    if not told:
        told = {"problems": [log.read_text()[-2_000:]]}
    line = {"name": name, "system": system, "lost": 0, "duplicates": 0, "problems": [], **told}
    with asked.keep.open("a") as kept:
        kept.write(json.dumps(line) + "\n")


def _options(name: str, system: str, letters: int) -> list[str]:
    """List the options that ask the harness for a test."""
    test, (partitions, kind) = name.split("/")[0], _TESTS[name]
    if name.startswith(_LOW):
        options = ["--test", "trickle", "--rate", name.removeprefix(_LOW), "--secs", str(_LOW_S), "--warm", str(_LOW_WARM)]
        options += ["--delay-max", str(_DELAY_MAX_S)]
    else:
        options = ["--test", test] + (["--n", str(letters)] if test != "trickle" else [])
    options += ["--partitions", str(partitions), "--letters", kind, "--isolation", "read_committed"]
    # Only to place the time at which all are due: late enough for either.
    options += ["--est-rate", "12000"]
    if system == PEER:
        options += ["--set", "GUARANTEE=exactly_once_v2", "--set", f"THREADS={min(2, partitions)}"]
    return options


def _open_jmx(port: int) -> list[str]:
    """Options of the broker's JVM: whoever is on this machine may ask it for its counts."""
    remote = "-Dcom.sun.management.jmxremote"
    return [
        f"{remote}.host={HOST}", f"{remote}.port={port}", f"{remote}.rmi.port={port}", f"{remote}.authenticate=false",
        f"{remote}.ssl=false", f"-Djava.rmi.server.hostname={HOST}",
    ]  # fmt: skip


def copy_adapter(peers: Path) -> Path:
    """The adapter of the peer, which is copied beside what is built of it."""
    target = _BUILT / "kafka-streams"
    if not (target / "target" / "retry-streams.jar").is_file():
        shutil.copytree(peers / "kafka-streams", target, dirs_exist_ok=True)
        subprocess.run(["mvn", "-B", "-q", "-DskipTests", "package"], cwd=target, check=True)
    adapters = _BUILT / "harness" / "adapters"
    adapters.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(peers / "harness" / "adapters" / "kafka-streams.json", adapters))


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _done(file: Path, name: str, system: str) -> int:
    return sum(line["name"] == name and line["system"] == system for line in _lines(file))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers", description="The worker beside a Kafka Streams service.")
    parser.add_argument("--peers", type=Path, required=True, metavar="DIRECTORY")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--letters", type=int, default=200_000)
    names = ",".join(_TESTS)
    parser.add_argument("--only", type=some(list(_TESTS)), default=list(_TESTS), metavar="NAME,...", help=names)
    parser.add_argument("--keep", type=Path, default=_BUILT / "runs.jsonl", metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
