"""One of each other door, on a broker that runs: recurring tasks and HTTP timers by one worker, then scheduled messages."""

from __future__ import annotations

from pathlib import Path

from examples import scheduler, tasks, timers
from examples.screen import Screen
from examples.stage import Stage
from retry.clock import Deadline


def show(folder: Path, servers: str, screen: Screen, deadline: Deadline) -> None:
    """Play them one after another; logs and data lie in `folder`.

    Raises:
      DemoFailed: something came that must not, or did not come in time.
    """
    settings = {"RETRY_BOOTSTRAP_SERVERS": servers, "RETRY_APP_ID": "doors", "RETRY_POLICIES": str(tasks.POLICIES),
                "RETRY_DATA_DIR": str(folder / "doors"), "RETRY_SHARDS": "2", "RETRY_HTTP_ADDR": "127.0.0.1:0"}  # fmt: skip
    with timers.receiving(folder) as (receiver, more), Stage(folder, settings | more) as stage:
        tasks.create_topics(servers)
        stage.run("topics", "create", deadline=deadline)
        for part in ("worker", "api"):
            stage.start(part, "retry", part)
        for part in ("worker", "api"):
            stage.await_ready(part, deadline)
        screen.say("\nrecurring tasks: definitions on a topic, runs on others")
        tasks.play(stage, servers, screen, deadline)
        screen.say("HTTP timers: asked for over HTTP, called by the worker")
        timers.play(stage, receiver, screen.say, deadline)
        stage.stop()
    settings = {"BOOTSTRAP_SERVERS": servers, "GROUP_ID": "demo-scheduler", "SERVER_ADDR": "127.0.0.1:0",
                "METRICS_ADDR": "127.0.0.1:0", "RETRY_DATA_DIR": str(folder / "scheduler"), "RETRY_SHARDS": "2"}  # fmt: skip
    with Stage(folder, settings) as stage:
        screen.say("\nscheduled messages: what the Go kafka-message-scheduler did")
        scheduler.show(stage, servers, screen.say, deadline)
        stage.stop()
