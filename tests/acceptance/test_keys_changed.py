"""Keys of encryption change under load while workers are killed with -9: nothing is lost, sent twice or sent garbled."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from retry.sealing.key_file import SETTING
from tests.conftest import Deploy
from tests.support.afterwards import nothing_is_wrong
from tests.support.faults import Runs
from tests.support.load import Load
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import Tail
from tests.support.sealed import line

DELAY_MS = 2_000
POLICY = "{backoff: {kind: constant, delay: 2s}, jitter: full}"
LETTERS_PER_S, MORE_S, CHANGES, SEED = 100, 180.0, 6, 20_261_125
pytestmark = pytest.mark.timeout(1_800)


class Scene:
    """Two workers, each with a file of keys of its own, as a secret is renewed on one machine sooner than on another.

    Attributes:
      keys: a line for each key that there ever was: commands have all of them.
    """

    def __init__(self, deploy: Deploy, folder: Path, runs: Runs) -> None:
        self.keys, self._folder, self._runs, self._draw = [line("k0", 0)], folder, runs, random.Random(SEED)
        self._write("commands", self.keys)
        commands = {SETTING: str(folder / "keys-of-commands")}
        self.deployment = deploy({"one": 1, "three": 3}, shards=4, defaults=POLICY, environ=commands)
        self.tail = Tail(self.deployment.bootstrap_servers, self.deployment.retry_topics())
        self.a, self.b = self.workers = [self.deployment.worker(name) for name in ("a", "b")]
        for worker in self.workers:
            self.give(worker, self.keys)
            self.start(worker)
        self.ready()

    def new(self) -> str:
        """The line of another key."""
        self.keys.append(line(f"k{len(self.keys)}", len(self.keys)))
        self._write("commands", self.keys)
        return self.keys[-1]

    def give(self, worker: WorkerProcess, lines: list[str]) -> None:
        """Put these keys into a worker's file, the one that seals first."""
        self._write(worker.name, lines)

    def start(self, worker: WorkerProcess) -> None:
        """Start a worker with its own file."""
        worker.start(**{SETTING: str(self._folder / f"keys-of-{worker.name}")})

    def kill(self, worker: WorkerProcess | None = None, *, starts: bool = True) -> None:
        """SIGKILL of one or of any, whose disk is lost every third time."""
        worker = worker or self._draw.choice(self.workers)
        assert worker.running(), worker.tail()
        worker.kill()
        self._runs.add()
        if self._runs.count % 3 == 0:
            self.deployment.wipe(worker)
        if starts:
            self.start(worker)

    def ready(self) -> None:
        """Wait until both have a part in it."""
        for worker in self.workers:
            worker.await_ready()

    def flows(self, seconds: int = 2) -> None:
        """Wait until as many letters more came back as come in such a time."""
        self.tail.await_more(seconds * LETTERS_PER_S, MORE_S)

    def in_any_order(self) -> list[WorkerProcess]:
        """Return both workers in any order."""
        return self._draw.sample(self.workers, len(self.workers))

    def waits(self, key: str) -> Mapping[str, int]:
        """Read what `retry keys list` says of a key."""
        told = self.deployment.command("keys", "list", "--json")
        assert told.returncode == 0, told.stderr
        found: dict[str | None, Mapping[str, int]] = {of["key_id"]: of for of in map(json.loads, told.stdout.splitlines())}
        return found[key.split()[0]]

    def _write(self, whose: str, lines: list[str]) -> None:
        new = self._folder / "new"
        new.write_text("".join(f"{each}\n" for each in lines))
        new.chmod(0o400)
        # As a mounted secret is replaced: whoever reads it finds it whole.
        new.rename(self._folder / f"keys-of-{whose}")


def read_hold(worker: WorkerProcess) -> str:
    """Read why entries cannot be opened, from health; empty where it has no reason, or does not answer."""
    status, body = worker.get("/health/ready")
    return json.dumps(found) if status and (found := json.loads(body)["held"]) else ""


@pytest.mark.fault("key of encryption taken away too early, under load, with SIGKILL")
@pytest.mark.parametrize("kills", [1, 2])
@pytest.mark.slow
def test_what_a_key_taken_away_too_early_sealed_is_held_with_the_reason_and_sent_once_it_is_back(
    deploy: Deploy, tmp_path: Path, runs: Runs, kills: int
) -> None:
    scene = Scene(deploy, tmp_path, runs)
    old, new = scene.keys[0], scene.new()
    with Load(scene.deployment, LETTERS_PER_S, DELAY_MS) as load:
        scene.flows()
        for worker in scene.workers:
            scene.give(worker, [new])
        why = "it is sealed under key k0, which is not in the file of RETRY_ENCRYPTION_KEYS"
        await_that("letters are held, and health says why", lambda: any(why in read_hold(worker) for worker in scene.workers))
        scene.kill()
        # All that the other key seals goes on meanwhile.
        scene.flows()
        scene.ready()
        await_that("all that waits under it is held", lambda: (of := scene.waits(old))["entries"] == of["held"] > 0)
        missing = [source for source in list(load.sender.sent) if source not in scene.tail.seen]
        assert len(missing) >= scene.waits(old)["held"]
        for worker in scene.workers:
            scene.give(worker, [new, old])
        if kills > 1:
            # In the middle of its way back.
            scene.tail.await_more(1, MORE_S)
            scene.kill()
    scene.tail.close()
    nothing_is_wrong(scene.deployment, load.sender, MORE_S)
    assert scene.waits(old)["entries"] == 0


@pytest.mark.slow
@pytest.mark.fault("keys of encryption changed under load, with SIGKILL at every step")
def test_keys_change_again_and_again_while_workers_are_killed(deploy: Deploy, tmp_path: Path, runs: Runs) -> None:
    scene = Scene(deploy, tmp_path, runs)
    with Load(scene.deployment, LETTERS_PER_S, DELAY_MS) as load:
        for change in range(CHANGES):
            scene.flows()
            before, new = scene.keys[-1], scene.new()
            if change % 2:
                sooner_in_one(scene, before, new)
            else:
                as_told(scene, before, new)
            if change:
                unused = scene.keys[change - 1]
                await_that("nothing waits under a key of long ago", lambda key=unused: scene.waits(key)["entries"] == 0)
                for worker in scene.in_any_order():
                    scene.give(worker, [new, before])
        scene.flows()
    scene.tail.close()
    nothing_is_wrong(scene.deployment, load.sender, MORE_S)
    assert runs.count >= 3 * CHANGES


def as_told(scene: Scene, before: str, new: str) -> None:
    """Change keys as the page tells it: at the end of each file, then at the top; somebody is killed after each step."""
    for lines in ([before, new], [new, before]):
        for worker in scene.in_any_order():
            scene.give(worker, [*lines, *_older(scene)])
            scene.kill()
            scene.flows(1)


def sooner_in_one(scene: Scene, before: str, new: str) -> None:
    """One seals with a key that the other does not have, and is killed; the other takes its shards and holds what is in them."""
    scene.ready()
    scene.give(scene.a, [new, before, *_older(scene)])
    await_that("letters wait under the new key", lambda: scene.waits(new)["entries"] > 0)
    scene.kill(scene.a, starts=False)
    await_that("the other holds what was sealed", lambda: "is not in the file" in read_hold(scene.b))
    scene.flows(1)
    scene.give(scene.b, [new, before, *_older(scene)])
    scene.kill(scene.b)
    scene.start(scene.a)
    scene.flows(1)
    scene.kill()


def _older(scene: Scene) -> list[str]:
    """The key before the one that is replaced, under which something may still wait."""
    return scene.keys[-3:-2]
