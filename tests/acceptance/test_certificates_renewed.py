"""Files of certificates are replaced while processes run: each takes them into use by itself, and goes on as what it was."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.conftest import Deploy
from tests.support.afterwards import nothing_is_wrong
from tests.support.asked_console import AskedConsole
from tests.support.client_files import ClientFiles, all_show, ends_s, rights
from tests.support.load import Load
from tests.support.ports import free_port
from tests.support.process import await_that
from tests.support.reading import Tail
from tests.support.secured import Certificates, SecuredBroker
from tests.support.timers import Api

pytestmark = pytest.mark.check

LETTERS_PER_S, DELAY_MS, MORE_S = 100, 2_000, 180.0
POLICY = "{backoff: {kind: constant, delay: 2s}, jitter: full}"
# A process waits a quarter of that at most, and has begun by then however busy the machine is.
VALID = timedelta(seconds=120)


@pytest.mark.slow
def test_a_worker_takes_a_replaced_certificate_into_use_and_each_letter_comes_once(
    deploy: Deploy, secured: SecuredBroker, tmp_path: Path
) -> None:
    old, new = "worker-before", "worker-afterwards"
    files, elsewhere = ClientFiles(secured, tmp_path), tmp_path / "elsewhere"
    for holder in (old, new):
        secured.grant(rights(holder))
    list(files.replace(old))
    deployment = deploy({"one": 1, "three": 3}, shards=4, defaults=POLICY, on=secured.inner, environ=files.environ)
    list(files.replace(old, VALID))
    worker = deployment.worker().start().await_ready()
    (until_s,) = ends_s(worker)
    elsewhere.mkdir()
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    with Load(deployment, LETTERS_PER_S, DELAY_MS) as load:
        tail.await_more(LETTERS_PER_S, MORE_S)
        list(files.put(*Certificates(elsewhere).files(old)))
        await_that("what another authority signed is refused", lambda: "are not used yet" in worker.log())
        tail.await_more(LETTERS_PER_S, MORE_S)
        assert ends_s(worker) == [until_s] and "begins anew" not in worker.log()
        list(files.replace(new))
        await_that("the new one is in use", lambda: all_show(worker, 1, until_s))
        # Nobody is known by the old one any more.
        secured.withdraw(rights(old))
        worker.await_ready()
        tail.await_more(2 * LETTERS_PER_S, MORE_S)
    tail.close()
    nothing_is_wrong(deployment, load.sender, MORE_S)
    # The same process all the time.
    assert worker.exit_code() == 0
    assert worker.log().count("begins anew with the files") == 1
    assert not [told for told in ("uthorization", "Traceback", "PRIVATE KEY") if told in worker.log()], worker.tail()


def test_api_scheduler_and_console_take_it_into_use_where_they_listen(
    deploy: Deploy, secured: SecuredBroker, tmp_path: Path
) -> None:
    old, new = "others-before", "others-afterwards"
    files, port = ClientFiles(secured, tmp_path), free_port()
    for holder in (old, new):
        secured.grant(rights(holder))
    list(files.replace(old))
    d = deploy({"orders": 1}, shards=2, on=secured.inner, environ=files.environ)
    list(files.replace(old, VALID))
    api = Api(d, RETRY_API_ADDR=f"127.0.0.1:{port}").start()
    timer = api.make("http://127.0.0.1:9/", after="1h")
    console = AskedConsole(d, {"ann": "*:admin"}).start()
    scheduler = d.worker("scheduler").start(
        "-m", "retry", "scheduler", RETRY_APP_ID="", GROUP_ID=f"{d.app_id}-s", SCHEDULES_TOPICS=f"{d.app_id}.schedules",
        HISTORY_TOPIC=f"{d.app_id}.history", SERVER_ADDR="127.0.0.1:0", METRICS_ADDR="127.0.0.1:0",
    ).await_ready()  # fmt: skip
    processes = (api.process, console.process, scheduler)
    (until_s,) = {end for process in processes for end in ends_s(process)}
    list(files.replace(new))
    for process in processes:
        await_that(f"{process.name} shows the new one", lambda process=process: all_show(process, 1, until_s))
    secured.withdraw(rights(old))
    for process in processes:
        process.await_ready()
    assert api.process.port() == port
    assert api.state(timer)["state"] == "waiting"
    assert api.make("http://127.0.0.1:9/", after="1h") != timer
    await_that("the console asks brokers", lambda: console.ask("ann", "GET", "/api/pauses")[0] == 200)
    for process in processes:
        assert process.log().count("begins anew with the files") == 1
        assert "Traceback" not in process.log(), process.tail()
        process.terminate()
