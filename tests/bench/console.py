"""`python -m tests.bench.console`: how fast `retry console` answers, how far it is behind, and what it takes, with many letters.

    python -m tests.bench.console [--sizes N,...] [--seconds N] [--json FILE]

For each size a broker's changelog is filled with so many letters of twenty teams, each with a message of its own and a stack
trace, and the console builds its replica of them. Then 1,000 letters a second come and as many go, each with an outcome, while
a few people look at pages and ask the API, a webhook is told of what is new, and a tenth as many letters is parked.

Before that each main page is asked alone; see `console_pages`. At last the console is ended, 100,000 letters come, and it is
started again.

| figure | what it is |
| --- | --- |
| rebuild | letters a second from the start of the process to its first page: folding all topics, indexes and full text included |
| page … | of all answers to one question, as the console says in `Server-Timing`; each asks for 50 rows with their count |
| at the client | the same of all, with what the client takes, which has the same cores |
| caught up | seconds until it stays behind by less than its target, with letters that come and go; only then do people look |
| lag | how old what is shown is, by the console's own word, asked four times a second |
| catching up | letters a second of those 100,000, from the start of the process until it says that it is live |
| memory | VmHWM of the console's processes together, from their start to the end |
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlencode

from confluent_kafka import Producer

from retry.kafka.local_broker import LocalBroker, free_port
from tests.support.process import end

from . import console_letters as made
from . import machine
from .arguments import setting
from .console_pages import ask_page, measure_live, measure_pages
from .figures import Figure, lines, number, table
from .letters import Incorrect, producer
from .service import Service
from .worker import ROOT

PAGE_MS, LAG_S, MEMORY_MIB, REBUILD_PER_S = 200, 5, 400, 10_000
_PER_S, _TURNS_PER_S = 1_000, 10
_PEOPLE, _THINK_S = 4, 0.05
_READY_S, _ANSWER_S, _COMMIT_S, _END_S = 3_600.0, 30.0, 60.0, 20.0
_CALM_S, _CATCH_UP_S = 10.0, 600.0
_BEHIND, _IN_TRANSACTION = 100_000, 10_000
_TEAMS = [f"team{n}" for n in range(20)]

QUESTIONS: dict[str, str] = {
    "now": "/",
    "failures": "/failures",
    "all letters": "/api/letters",
    "letters, as a page": "/letters",
    "team": "/api/letters?" + urlencode({"q": "team:team3"}),
    "team and exception": "/api/letters?" + urlencode({"q": "team:team3 exception:*IllegalState*"}),
    "an exception that the team has not": "/api/letters?" + urlencode({"q": "team:team3 exception:*SocketTimeout*"}),
    "state": "/letters?" + urlencode({"q": "state:waiting -team:team1"}),
    "due": "/api/letters?" + urlencode({"q": "due:<1h team:team7"}),
    "key": "/api/letters?" + urlencode({"q": "key:order-000000017"}),
    "key, its beginning": "/api/letters?" + urlencode({"q": "key:order-00000*"}),
    "key, its end": "/api/letters?" + urlencode({"q": "key:*4711"}),
    "message, rare": "/api/letters?" + urlencode({"q": 'message:"order 17 "'}),
    "message, in all": "/letters?" + urlencode({"q": "message:declined team:team5"}),
    "header": "/api/letters?" + urlencode({"q": "header.tenant:tenant17"}),
    "age": "/api/letters?" + urlencode({"q": "age:>5m attempt:2.."}),
    "nothing": "/letters?" + urlencode({"q": "team:team3 key:nobody*"}),
    "groups of a filter": "/api/groups?" + urlencode({"q": "team:team3"}),
}


class ConsoleProcess:
    """`retry console` over a service's topics, without a worker."""

    def __init__(self, service: Service) -> None:
        self._port = free_port()
        self._log = (service.folder / "console.log").open("ab")
        self._hooks = HTTPServer(("127.0.0.1", 0), _Hook)
        threading.Thread(target=self._hooks.serve_forever, daemon=True).start()
        address, rules = service.folder / "hook-url", service.folder / "notifications.yaml"
        address.write_text(f"http://127.0.0.1:{self._hooks.server_port}/")
        rules.write_text(f"targets: {{hook: {{webhook: {address}}}}}\nrules: [{{to: hook}}]\n")
        environment = {
            **service.environment, "RETRY_CONSOLE_ADDR": f"127.0.0.1:{self._port}", "RETRY_WEBHOOK_ALLOW": "127.0.0.0/8",
            "RETRY_CONSOLE_NOTIFICATIONS": str(rules),
        }  # fmt: skip
        self.began = time.time()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "retry", "console"], env=environment, cwd=ROOT,
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, start_new_session=True,
        )  # fmt: skip

    def client(self) -> http.client.HTTPConnection:
        """A connection that is kept."""
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=_ANSWER_S)

    def until_ready(self, *states: str) -> float:
        """Seconds from its start to the first moment at which it shows something, and is in one of these states, if any."""
        while time.time() - self.began < _READY_S:
            if self.process.poll() is not None:
                raise Incorrect("the console has ended")
            try:
                answer = ask_page(self.client(), "/api/now")
                if answer.status == http.client.OK and (not states or json.loads(answer.body)["freshness"]["state"] in states):
                    return time.time() - self.began
            except OSError:
                time.sleep(0.05)
            time.sleep(0.05)
        raise Incorrect("the console was not ready in an hour")

    def until_caught_up(self) -> float:
        """Seconds from now on until its lag is within the target, and stays there for a while; told on standard output.

        Where that takes too long it is told all the same: what is measured then shows it.
        """
        client, began = self.client(), time.monotonic()
        caught_up_s, now_s, lag = 0.0, 0.0, 0.0
        while now_s - caught_up_s < _CALM_S and now_s < _CATCH_UP_S:
            time.sleep(0.25)
            now_s, lag = time.monotonic() - began, lag_s(client)
            if lag > LAG_S:
                caught_up_s = now_s
        print(f"caught up after {caught_up_s:.1f} s; {lag:.1f} s behind", flush=True)
        return caught_up_s

    def close(self) -> None:
        end(self.process, _END_S)
        self._log.close()
        self._hooks.shutdown()
        self._hooks.server_close()

    def memory_mib(self) -> float:
        """The most that its processes have had."""
        return sum(machine.rss_mb(pid, "VmHWM") for pid in machine.family(self.process.pid)) * 1e6 / (1 << 20)

    def cpu_s(self) -> float:
        """Sum the processor time (s) that its processes have used."""
        return sum(map(machine.cpu_s, machine.family(self.process.pid)))


class _Hook(BaseHTTPRequestHandler):
    """Takes what a webhook is told."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def lag_s(client: http.client.HTTPConnection) -> float:
    """How old what is shown is."""
    told = json.loads(ask_page(client, "/api/now").body)
    return time.time() - made.moment_s(told["freshness"]["as_of"])


class People:
    """Some who look at pages one after another, and what each answer took."""

    def __init__(self, console: ConsoleProcess) -> None:
        self._console, self._closing = console, threading.Event()
        self.took_ms: dict[str, list[float]] = {name: [] for name in QUESTIONS}
        self.seen_ms: list[float] = []
        self.lags_s: list[float] = []
        self.faults: list[str] = []
        self._threads = [threading.Thread(target=self._look, args=(n,)) for n in range(_PEOPLE)]
        self._threads.append(threading.Thread(target=self._watch))

    def look(self, seconds: float) -> None:
        """Look for so long."""
        for thread in self._threads:
            thread.start()
        time.sleep(seconds)
        self._closing.set()
        for thread in self._threads:
            thread.join()
        if self.faults:
            raise Incorrect(f"{len(self.faults)} answers were none, the first: {self.faults[0]}")

    def _look(self, first: int) -> None:
        client, questions = self._console.client(), list(QUESTIONS.items())
        n = first * len(questions) // _PEOPLE
        while not self._closing.is_set():
            name, path = questions[n % len(questions)]
            began = time.perf_counter()
            try:
                answer = ask_page(client, path)
            except OSError as error:
                self.faults.append(f"{path}: {error}")
                return
            self.seen_ms.append((time.perf_counter() - began) * 1e3)
            self.took_ms[name].append(answer.server_ms)
            if answer.status != http.client.OK:
                self.faults.append(f"{path}: {answer.status} {answer.body[:200]!r}")
            n += 1
            self._closing.wait(_THINK_S)

    def _watch(self) -> None:
        client = self._console.client()
        while not self._closing.wait(0.25):
            self.lags_s.append(lag_s(client))


class Churn:
    """Letters that come and go at a steady rate, each turn in one transaction, as intake and sweep write them."""

    def __init__(self, service: Service, size: int) -> None:
        self._service, self.next_number, self._oldest = service, size, 0
        self._closing, self.behind_s = threading.Event(), 0.0
        self._producer: Producer = producer(service.bootstrap, **{"transactional.id": f"{service.names.intake_group}-churn"})
        self._producer.init_transactions(_COMMIT_S)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Churn:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        began, turns, letters = time.time(), 0, _PER_S // _TURNS_PER_S
        while not self._closing.is_set():
            self._turn(letters)
            turns += 1
            due_s = began + turns / _TURNS_PER_S
            self.behind_s = max(self.behind_s, time.time() - due_s)
            self._closing.wait(max(0.0, due_s - time.time()))

    def _turn(self, letters: int) -> None:
        service, come = self._service, range(self.next_number, self.next_number + letters)
        go = range(self._oldest, self._oldest + letters)
        self.next_number, self._oldest = come.stop, go.stop
        self._producer.begin_transaction()
        made.write(self._producer, service, come)
        made.end(self._producer, service, go)
        made.tell(self._producer, service, come)
        self._producer.commit_transaction(_COMMIT_S)


def measure_size(broker: LocalBroker, work: Path, size: int, seconds: float, more: dict[str, str]) -> list[Figure]:
    """All figures of one size."""
    with Service(broker, work, more, teams=_TEAMS) as service:
        made.fill(service, size)
        made.fill_beside(service, size)
        console = ConsoleProcess(service)
        try:
            ready_s = console.until_ready()
            built_mib = console.memory_mib()
            console.until_ready("live")
            _warm(console)
            alone = [*measure_pages(console.client(), console.process.pid), *measure_live(console.client(), service, size)]
            print(table(lines(alone)), flush=True)
            people = People(console)
            with Churn(service, size + _BEHIND) as churn:
                caught_up_s, cpu_s = console.until_caught_up(), console.cpu_s()
                people.look(seconds)
            cpu_s, memory_mib = console.cpu_s() - cpu_s, console.memory_mib()
            disk_mb = machine.disk_mb(service.data_dir)
            console.until_ready("live")
            console.close()
            _fall_behind(service, churn.next_number)
            console = ConsoleProcess(service)
            behind_s = console.until_ready("live")
        except BaseException as error:
            error.add_note((service.folder / "console.log").read_text()[-3_000:])
            raise
        finally:
            console.close()
    every = [took for of in people.took_ms.values() for took in of]
    return [
        Figure("rebuild", (size + size // 10) / ready_s, "letters/s"),
        Figure("until the first page", ready_s, "s"),
        Figure("catching up", _BEHIND / behind_s, "letters/s"),
        *alone,
        Figure("caught up", caught_up_s, "s"),
        Figure("memory while it is built", built_mib, "MiB", most=MEMORY_MIB),
        Figure("memory at the most", memory_mib, "MiB", most=MEMORY_MIB),
        Figure("disk", disk_mb, "MB"),
        Figure("answers", len(every) / seconds, "1/s"),
        Figure("CPU of the console", cpu_s / seconds, "cores"),
        Figure("letters come late by", churn.behind_s, "s"),
        Figure("lag p50", _percentile(people.lags_s, 0.5), "s"),
        Figure("lag p99", _percentile(people.lags_s, 0.99), "s", most=LAG_S),
        Figure("at the client p50", _percentile(people.seen_ms, 0.5), "ms"),
        Figure("at the client p99", _percentile(people.seen_ms, 0.99), "ms"),
        Figure("page p50", _percentile(every, 0.5), "ms"),
        Figure("page p99", _percentile(every, 0.99), "ms", most=PAGE_MS),
        *(Figure(f"page p99: {name}", _percentile(took, 0.99), "ms", most=PAGE_MS) for name, took in people.took_ms.items()),
    ]  # fmt: skip


def _fall_behind(service: Service, first: int) -> None:
    """So many letters come while no console is there, from this number on."""
    to = producer(service.bootstrap, **{"transactional.id": f"{service.names.intake_group}-behind"})
    to.init_transactions(_COMMIT_S)
    for begin in range(first, first + _BEHIND, _IN_TRANSACTION):
        to.begin_transaction()
        made.write(to, service, range(begin, begin + _IN_TRANSACTION))
        to.commit_transaction(_COMMIT_S)


def _warm(console: ConsoleProcess) -> None:
    client = console.client()
    for path in QUESTIONS.values():
        ask_page(client, path)


def _percentile(values: Sequence[float], part: float) -> float:
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * part))] if ranked else float("inf")


def main() -> int:
    """Measure size by size; exit code 1 where a target was missed, or something failed."""
    asked_for = _arguments()
    told, missed = {}, False
    print(machine.describe(), flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="retry-console-") as folder,
        LocalBroker(Path(folder) / "broker", heap_mb=1_024, brief=False) as broker,
    ):
        for size in asked_for.sizes:
            figures = measure_size(broker, Path(folder), size, asked_for.seconds, dict(asked_for.set))
            found = lines(figures)
            missed |= any(line.verdict not in ("", "ok") for line in found) or figures[0].value < REBUILD_PER_S
            told[f"{size:,}"] = {line.figure: {"value": line.value, "unit": line.unit, "verdict": line.verdict} for line in found}
            print(f"\n{size:,} letters, {_PER_S:,}/s in and out for {asked_for.seconds:g} s:\n{table(found)}", flush=True)
            print(f"rebuild: {number(figures[0].value)} letters/s, wanted are {REBUILD_PER_S:,}", flush=True)
    if asked_for.json:
        asked_for.json.write_text(json.dumps({"machine": machine.describe(), "sizes": told}, indent=1) + "\n")
    return int(missed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.console", description="How fast the console answers.")
    parser.add_argument("--sizes", type=_numbers, default=[10**6], metavar="N,...", help="letters that wait")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long people look while letters come and go")
    parser.add_argument("--set", action="append", type=setting, default=[], metavar="NAME=VALUE", help="of the console")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
