"""What is done to a deployment, one thing after another, drawn by a seed."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable

from retry.clock import Deadline
from retry.kafka.local_broker import LocalBroker
from tests.support.deployment import Deployment
from tests.support.process import WorkerProcess, await_that, let_pass

# The session timeout is 6 s.
_FROZEN_S = (8.0, 14.0)
_BETWEEN_S = (1.0, 9.0)
_DOWN_S = (0.0, 3.0)
_STOP_S = 30.0
# What a worker says that has to be started again, which nobody here has asked for.
_ENDS = {
    "no broker answered": "worker found no broker when it started",
    "rdkafka_admin.c": "worker ended by an assertion of its Kafka client",
    "has stood still for": "worker ended by its watchdog",
}


class Faults:
    """Does something to a deployment now and then, and counts it.

    Attributes:
      done: how often, by kind.
    """

    def __init__(self, deployment: Deployment, broker: LocalBroker, workers: list[WorkerProcess], seed: int) -> None:
        self.done: Counter[str] = Counter()
        self._deployment, self._broker, self._workers = deployment, broker, workers
        self._draw = random.Random(seed)
        self._policies = deployment.policy_file.read_text()
        self._kinds: dict[str, tuple[int, Callable[[], None]]] = {
            "worker killed": (50, self._kill),
            "worker killed, directory lost": (15, self._kill_and_wipe),
            "worker frozen past its session": (7, self._freeze),
            "worker stopped by SIGTERM": (8, self._terminate),
            "worker joins and leaves": (6, self._join),
            "all workers killed": (4, self._kill_all),
            "broker killed": (3, self._kill_broker),
            "broker frozen": (2, self._freeze_broker),
            "policy file changed": (3, self._change_policies),
            "team paused": (2, self._pause),
        }

    def go_on(self, seconds: float) -> None:
        """One fault after another, for so long."""
        deadline = Deadline(seconds)
        weights = [weight for weight, _ in self._kinds.values()]
        while not deadline.has_passed():
            let_pass(self._draw.uniform(*_BETWEEN_S))
            self.supervise()
            kind = self._draw.choices(list(self._kinds), weights)[0]
            self._kinds[kind][1]()
            self.done[kind] += 1

    def supervise(self) -> None:
        """Start workers again that ended by themselves, as whatever runs them does, and count why."""
        for worker in self._workers:
            if not worker.running():
                told = f"{worker.name} ended by itself with {worker.exit_code()}:\n{worker.tail()}"
                why = next((why for word, why in _ENDS.items() if word in worker.log()), None)
                assert why is not None, told
                print(told, flush=True)
                self.done[why] += 1
                worker.start()

    def _one(self) -> WorkerProcess:
        return self._draw.choice(self._workers)

    def _kill(self) -> None:
        worker = self._one()
        worker.kill()
        let_pass(self._draw.uniform(*_DOWN_S))
        worker.start()

    def _kill_and_wipe(self) -> None:
        worker = self._one()
        worker.kill()
        self._deployment.wipe(worker)
        worker.start()

    def _kill_all(self) -> None:
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.start()

    def _freeze(self) -> None:
        worker = self._one()
        worker.signal(signal.SIGSTOP)
        let_pass(self._draw.uniform(*_FROZEN_S))
        worker.signal(signal.SIGCONT)

    def _terminate(self) -> None:
        worker = self._one()
        self._ask_to_end(worker)
        worker.start()

    @staticmethod
    def _ask_to_end(worker: WorkerProcess) -> None:
        worker.signal(signal.SIGTERM)
        code = worker.wait(_STOP_S)
        # One that has only just started holds nothing yet, and ends as any program does.
        assert code in (0, -signal.SIGTERM), f"{worker.name} ended with {code}:\n{worker.tail()}"

    def _join(self) -> None:
        guest = self._deployment.worker("guest").start()
        let_pass(self._draw.uniform(2.0, 12.0))
        guest.kill() if self._draw.random() < 0.5 else self._ask_to_end(guest)

    def _kill_broker(self) -> None:
        self._broker.kill()
        let_pass(self._draw.uniform(*_DOWN_S))
        self._broker.start()

    def _freeze_broker(self) -> None:
        os.kill(self._broker.pid, signal.SIGSTOP)
        let_pass(self._draw.uniform(*_FROZEN_S))
        os.kill(self._broker.pid, signal.SIGCONT)

    def _change_policies(self) -> None:
        delay_s = self._draw.choice((2, 3, 5, 8))
        self._deployment.policy_file.write_text(self._policies.replace("delay: 3s", f"delay: {delay_s}s"))

    def _pause(self) -> None:
        # A command that finds no broker is said to have failed; what counts is that nothing is lost by it.
        self._deployment.command("pause", "--team", "testers")
        let_pass(self._draw.uniform(2.0, 6.0))
        self.resume()

    def resume(self) -> None:
        """Let everything go again."""
        # A broker that has just come back may need more than one question.
        resume = "resume", "--team", "testers"
        await_that("everything goes again", lambda: self._deployment.command(*resume).returncode == 0, 120.0)
