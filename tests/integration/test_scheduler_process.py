"""The parts of `retry scheduler` that need a socket or a process, and no broker."""

from __future__ import annotations

import json
import logging
import logging.config
import socket
import zlib
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from retry.kafka.broker import free_port
from retry.scheduler.logs import logging_of
from retry.scheduler.settings import from_environment
from tests.support.process import ROOT, WorkerProcess, await_that

MANIFESTS = ROOT / "examples" / "deploy-scheduler"


def test_1_18_a_log_line_reaches_graylog() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as graylog:
        graylog.bind(("127.0.0.1", 0))
        graylog.settimeout(10)
        config = logging_of(from_environment({"GRAYLOG_SERVER": f"127.0.0.1:{graylog.getsockname()[1]}"}))
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
        with urlopen(f"http://127.0.0.1:{port}/schedules", timeout=10) as answer:
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
    settings = from_environment(given)
    assert settings.worker.bootstrap_servers == "kafka:9092"
    assert settings.worker.kafka.get("security.protocol") == ("SASL_SSL" if name == "file.yaml" else None)
    (container,) = parts["Deployment", "kafka-message-scheduler"]["spec"]["template"]["spec"]["containers"]
    assert {port["containerPort"] for port in container["ports"]} == {8000, 8001}
