"""The parts of `retry scheduler` that need a socket or a process, and no broker."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import logging.config
import socket
import zlib
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml
from aiohttp import web

from retry.errors import SchedulerEnded
from retry.kafka.local_broker import free_port
from retry.scheduling.messages import rest_api
from retry.scheduling.messages.embedded import Runner
from retry.scheduling.messages.rest_api import decode_body
from retry.scheduling.messages.search import ScheduleJson
from retry.scheduling.messages.settings import build_scheduler_logging, read_scheduler_settings
from tests.support.process import ROOT, WorkerProcess, await_that

pytestmark = pytest.mark.check

MANIFESTS = ROOT / "examples" / "deploy-scheduler"


def test_1_18_a_log_line_reaches_graylog() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as graylog:
        graylog.bind(("127.0.0.1", 0))
        graylog.settimeout(10)
        config = build_scheduler_logging(read_scheduler_settings({"GRAYLOG_SERVER": f"127.0.0.1:{graylog.getsockname()[1]}"}))
        only = config["handlers"]["graylog"]
        logging.config.dictConfig({
            "version": 1, "disable_existing_loggers": False, "handlers": {"graylog": only},
            "loggers": {"tests.graylog": {"handlers": ["graylog"], "level": "INFO", "propagate": False}},
        })  # fmt: skip
        logging.getLogger("tests.graylog").warning("a line for %s", "Graylog")
        told = json.loads(zlib.decompress(graylog.recv(65_536)))
        logging.getLogger("tests.graylog").handlers.clear()
    assert (told["short_message"], told["version"], told["level"]) == ("a line for Graylog", "1.1", 4)
    assert (told["_app"], told["_facility"]) == ("kafka-message-scheduler", "kafka-message-scheduler")


def test_1_20_mini_answers_without_kafka_and_ends_on_sigterm(tmp_path: Path) -> None:
    port = free_port()
    mini = WorkerProcess("mini", tmp_path, {"SERVER_ADDR": f"127.0.0.1:{port}", "BOOTSTRAP_SERVERS": "127.0.0.1:1"})
    mini.start("-m", "retry", "scheduler", "--mini")
    try:
        await_that("it answers", lambda: f"rest on 127.0.0.1:{port}" in mini.log())
        with urlopen(f"http://127.0.0.1:{port}/schedules", timeout=60) as answer:
            assert {each["id"] for each in json.loads(answer.read())} == {"schedule-1", "schedule-2", "schedule-3"}
        mini.terminate()
    finally:
        mini.kill()


@pytest.mark.parametrize(
    ("name", "value"), [("SINCE_DELTA", "1"), ("CONFIGURATION_FILE", "/nowhere.yaml"), ("SERVER_ADDR", "x:y:z")]
)
def test_what_cannot_be_used_is_said_in_a_line(tmp_path: Path, name: str, value: str) -> None:
    process = WorkerProcess("wrong", tmp_path, {name: value}).start("-m", "retry", "scheduler")
    assert process.wait(60) == 1
    assert process.log().startswith(f"{name}: ")
    assert len(process.log().splitlines()) == 1


@pytest.mark.parametrize("name", ["env.yaml", "file.yaml"])
def test_1_22_the_manifests_hold_settings_that_the_scheduler_takes(name: str, tmp_path: Path) -> None:
    parts = {(part["kind"], part["metadata"]["name"]): part for part in yaml.safe_load_all((MANIFESTS / name).read_text())}
    given = dict(parts["ConfigMap", "env-config"]["data"])
    if "CONFIGURATION_FILE" in given:
        (tmp_path / "config.yaml").write_text(parts["ConfigMap", "yaml-config"]["data"]["config.yaml"])
        given["CONFIGURATION_FILE"] = str(tmp_path / "config.yaml")
    settings = read_scheduler_settings(given)
    assert settings.worker.bootstrap_servers == "kafka:9092"
    assert settings.worker.kafka.get("security.protocol") == ("SASL_SSL" if name == "file.yaml" else None)
    (container,) = parts["Deployment", "kafka-message-scheduler"]["spec"]["template"]["spec"]["containers"]
    assert {port["containerPort"] for port in container["ports"]} == {8000, 8001}


def test_1_21_a_program_runs_a_scheduler_beside_itself_and_closes_it(tmp_path: Path) -> None:
    with Runner({"BOOTSTRAP_SERVERS": "127.0.0.1:1"}, mini=True, log=tmp_path / "log") as scheduler:
        url = scheduler.url
        with urlopen(f"{url}/schedules", timeout=60) as answer:
            assert len(json.loads(answer.read())) == 3
    with pytest.raises(URLError):
        urlopen(f"{url}/schedules", timeout=60)


def test_1_21_a_scheduler_that_cannot_start_is_told_of_and_not_left_running(tmp_path: Path) -> None:
    with pytest.raises(SchedulerEnded, match="ended with 1"):
        Runner({"SINCE_DELTA": "tomorrow"}, log=tmp_path / "log").start()
    assert (tmp_path / "log").read_text().startswith("SINCE_DELTA: ")


def test_1_21_the_image_runs_the_scheduler_on_the_ports_of_the_seed() -> None:
    lines = (ROOT / "Dockerfile").read_text().partition(" AS scheduler\n")[2].partition("\n\n")[0].splitlines()
    environ = dict(part.split("=", 1) for line in lines if line.startswith("ENV ") for part in line.split()[1:])
    settings = read_scheduler_settings(
        {name: value for name, value in environ.items() if name in ("SERVER_ADDR", "METRICS_ADDR")}
    )
    assert (str(settings.server), str(settings.metrics)) == ("0.0.0.0:8000", "0.0.0.0:8001")
    assert any(line.startswith(("ENTRYPOINT", "CMD")) and "scheduler" in line for line in lines)


SHOWN = ScheduleJson(**{
    "id": "a", "epoch": 1, "timestamp": 1, "topic": "s", "target-topic": "t", "target-key": "k",
    "value": base64.b64encode(b"raw").decode(),
})  # type: ignore[typeddict-item]  # fmt: skip


@pytest.mark.parametrize(("status", "answers", "shown"), [
    (200, b"readable", b"readable"), (200, b"", b"raw"), (500, b"oops", b"raw"), (204, b"", b"raw"),
    (200, b"x" * (5 << 20), b"raw"),
])  # fmt: skip
def test_1_23_a_value_is_shown_as_the_body_decoder_answers_or_else_as_it_is(
    status: int, answers: bytes, shown: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may take longer than the second that a decoder has.
    monkeypatch.setattr(rest_api, "_ANSWER_S", 60.0)
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(await request.json())
        return web.Response(status=status, body=answers)

    async def ask() -> ScheduleJson:
        app = web.Application()
        app.router.add_post("/decode", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            return await decode_body(f"http://127.0.0.1:{runner.addresses[0][1]}/decode", SHOWN)
        finally:
            await runner.cleanup()

    found = asyncio.run(ask())
    assert asked == [SHOWN]
    assert base64.b64decode(found["value"] or "") == shown
    assert {**found, "value": None} == {**SHOWN, "value": None}


def test_1_23_without_a_decoder_that_answers_the_value_is_shown_as_it_is() -> None:
    assert asyncio.run(decode_body(f"http://127.0.0.1:{free_port()}/decode", SHOWN)) == SHOWN
