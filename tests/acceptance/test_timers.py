"""HTTP timers through the real commands and a real broker; names carry the numbers of the acceptance list (2-1 … 2-16)."""

from __future__ import annotations

import json
import socket

import pytest

from retry.clock import wall_ms
from retry.http_client.signatures import read_key, sign_body
from retry.kafka import topics
from tests.conftest import Deploy
from tests.support.deployment import Deployment
from tests.support.hosts import Host, hang, reset, says, status
from tests.support.process import WorkerProcess, await_that, let_pass
from tests.support.reading import COMMITTED, read
from tests.support.timers import Api

pytestmark = pytest.mark.check

Running = tuple[Deployment, Api, WorkerProcess]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
QUICK = {"backoff": {"kind": "constant", "delay": "300ms"}, "jitter": "none", "max_attempts": 2}


@pytest.fixture
def prepared_timers(deploy: Deploy) -> Running:
    """An API, and a worker that is not started, so that nothing is called yet; it may call loopback, and signs its calls."""
    # A host that is busy has so long to answer. Few calls at a time, so that a breaker opens before all of many are made.
    environ = {"RETRY_WEBHOOK_ALLOW": "127.0.0.0/8", "RETRY_CALL_TIMEOUT_MS": "5000", "RETRY_CALLS_PER_HOST": "4"}
    deployment = deploy({"orders": 1}, shards=2, environ=environ)
    secrets = deployment.folder / "secrets"
    secrets.write_text(f"# the one of now\n{SECRET}\n")
    deployment.environ["RETRY_WEBHOOK_SECRETS"] = str(secrets)
    return deployment, Api(deployment).start(), deployment.worker("a")


@pytest.fixture
def running(prepared_timers: Running) -> Running:
    """Start a worker beside the prepared timers, and wait until it is ready."""
    prepared_timers[2].start().await_ready()
    return prepared_timers


def read_calls(deployment: Deployment) -> list[dict[str, object]]:
    """Read what the service has written of calls."""
    return [json.loads(record.value) for record in read(deployment.bootstrap_servers, [deployment.names.calls], COMMITTED)]


@pytest.mark.essential
def test_2_1_2_2_2_3_2_5_a_timer_is_made_called_in_time_retried_and_told_of(prepared_timers: Running) -> None:
    deployment, api, worker = prepared_timers
    with Host() as host, Host(status(500, body=b"not yet")) as slow, Host(status(410)) as gone, Host() as prompt:
        wish = {"url": f"{host.url}/hook?a=b", "after": "1s", "body": {"order": 17}, "headers": {"X-Own": "1"}}
        code, told, headers = api.ask("POST", "/timers", wish, Idempotency_Key="k1")
        assert (code, told["state"], headers["location"]) == (201, "waiting", f"/timers/{told['id']}")
        timer_id = told["id"]
        assert api.ask("POST", "/timers", wish, Idempotency_Key="k1")[0:2] == (200, told)
        assert api.ask("POST", "/timers", {**wish, "body": None}, Idempotency_Key="k1")[0] == 409
        later = api.make(host.url, after="1h")
        ended = api.make(host.url, after="2s")
        listed = lambda: [t["id"] for t in api.ask("GET", "/timers")[1]["timers"]]  # noqa: E731
        await_that("they are listed", lambda: listed() == [timer_id, ended, later])
        assert api.ask("DELETE", f"/timers/{ended}")[0] == 204
        assert api.state(ended) == {}
        worker.start().await_ready()
        made_at_ms = wall_ms()
        soon = api.make(prompt.url, after="1s")
        failing = api.make(slow.url, after="0s", policy=QUICK, body="three times")
        left = api.make(gone.url, after="0s")
        await_that("it was called", lambda: host.calls)
        (call,) = host.calls
        await_that("so was the one that was made while the worker ran", lambda: prompt.calls)
        assert prompt.calls[0].at_ms >= made_at_ms + 1_000
        assert (call.method, call.path, call.body) == ("POST", "/hook?a=b", b'{"order": 17}')
        assert (call.headers["x-own"], call.headers["content-type"]) == ("1", "application/json")
        proof = sign_body([read_key(SECRET)], timer_id, int(call.headers["webhook-timestamp"]), call.body)
        assert {name: call.headers[name] for name in proof} == proof
        await_that("it is delivered", lambda: api.state(timer_id).get("state") == "delivered")
        assert api.state(timer_id)["last_call"]["status"] == 200
        await_that("the other one, too", lambda: api.state(soon).get("state") == "delivered")
        assert api.ask("POST", "/timers", wish, Idempotency_Key="k1")[0] == 200, "it is not called again"
        await_that("the failing one is given up", lambda: api.state(failing).get("state") == "parked")
        assert [c.headers["webhook-id"] for c in slow.calls] == [failing] * 3
        assert (api.state(failing)["reason"], api.state(failing)["last_call"]["body"]) == ("max_attempts", "not yet")
        await_that("the one that is gone is", lambda: api.state(left).get("state") == "parked")
        assert (api.state(left)["reason"], len(gone.calls)) == ("gone", 1)
        let_pass(2.5)
        assert (len(host.calls), len(prompt.calls)) == (1, 1), "the one that was ended is not called"
        await_that("only one is listed", lambda: listed() == [later])
        parked = read(deployment.bootstrap_servers, [deployment.names.parked_timers], COMMITTED)
        assert sorted((r.key, r.value) for r in parked) == sorted([(failing.encode(), b"three times"), (left.encode(), b"")])
        assert read(deployment.bootstrap_servers, [deployment.names.parked], COMMITTED) == []
        await_that("calls are counted", lambda: worker.metric("retry_webhooks_total") == 6)
        assert [c["attempt"] for c in read_calls(deployment) if c["id"] == failing] == [1, 2, 3]


def test_2_1_2_11_2_13_2_14_the_api_describes_itself_refuses_in_words_and_is_healthy(running: Running) -> None:
    _, api, _ = running
    status_, page, headers = api.ask("GET", "/docs")
    assert (status_, "POST" in page.upper(), "default-src 'none'" in headers["content-security-policy"]) == (200, True, True)
    assert "http://" not in page
    assert "https://" not in page.replace("https://example.com", "")
    assert api.ask("GET", "/openapi.json")[1]["openapi"] == "3.1.0"
    assert api.ask("GET", "/health/ready")[0] == 200
    assert "retry_api_requests_total" in api.ask("GET", "/metrics")[1]
    for wish, said in (
        ({"url": "https://example.com/"}, "either at"),
        ({"url": "http://8.8.8.8/", "after": "1s"}, "only https"),
        ({"url": "https://192.168.1.1/", "after": "1s"}, "not one that may be called"),
        ({"url": "https://169.254.169.254/", "after": "1s"}, "not one that may be called"),
        ({"url": "http://127.0.0.1:1/", "after": "soon"}, "not a duration"),
        ({"url": "http://127.0.0.1:1/", "at": "2026-01-01T00:00"}, "no offset"),
        ({"url": "http://127.0.0.1:1/", "after": "1s", "headers": {"Host": "x"}}, "leave it out"),
        ({"url": "http://127.0.0.1:1/", "after": "1s", "headers": {"X": "a\r\nY: b"}}, "no header may have"),
        ({"url": "http://127.0.0.1:1/", "after": "1s", "unknown": 1}, "unknown"),
        ({"url": "http://127.0.0.1:1/", "after": "1s", "policy": {"backoff": 3}}, "policy: backoff"),
    ):
        code, told, headers = api.ask("POST", "/timers", wish)
        assert (code, headers["content-type"]) == (422, "application/problem+json")
        assert said in told["detail"], told
    assert api.ask("POST", "/timers", b"x" * 600_000)[0] == 413
    assert api.ask("POST", "/timers", b"{}", Content_Type="text/plain")[0] == 415
    assert api.ask("GET", "/timers/tmr_unknown")[0] == 404
    assert api.ask("GET", "/nothing")[0] == 404
    assert api.ask("GET", "/timers", Host="attacker.example")[0] == 400


def test_2_6_2_11_tokens_are_asked_for_and_teams_do_not_see_each_other(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, shards=2)
    refused = deployment.command("api", RETRY_API_ADDR="0.0.0.0:0")
    assert (refused.returncode, "RETRY_API_TOKENS" in refused.stderr) == (1, True)
    made = [deployment.command("api", "token", team) for team in ("billing", "shipping")]
    file = deployment.folder / "tokens"
    file.write_text("".join(each.stdout for each in made))
    one, other = (f"Bearer {each.stderr.strip()}" for each in made)
    api = Api(deployment, RETRY_API_TOKENS=str(file)).start()
    wish = {"url": "http://127.0.0.1:9/", "after": "1h"}
    assert api.ask("POST", "/timers", wish)[0] == 401
    assert api.ask("POST", "/timers", wish, Authorization="Bearer wrong")[0] == 401
    code, told, _ = api.ask("POST", "/timers", wish, Authorization=one)
    assert code == 201
    assert api.ask("GET", f"/timers/{told['id']}", Authorization=one)[0] == 200
    assert api.ask("GET", f"/timers/{told['id']}", Authorization=other)[0] == 404
    assert api.ask("DELETE", f"/timers/{told['id']}", Authorization=other)[0] == 404
    listed = lambda who: [t["id"] for t in api.ask("GET", "/timers", Authorization=who)[1]["timers"]]  # noqa: E731
    await_that("it is listed", lambda: listed(one) == [told["id"]])
    assert listed(other) == []
    second = Api(deployment, "api-2", RETRY_API_TOKENS=str(file)).start()
    assert second.ask("GET", f"/timers/{told['id']}", Authorization=one)[0] == 200
    api.process.terminate()
    assert second.ask("DELETE", f"/timers/{told['id']}", Authorization=one)[0] == 204


def test_2_6_2_9_a_worker_for_timers_alone_needs_no_policy_file(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, shards=2, environ={"RETRY_WEBHOOK_ALLOW": "127.0.0.0/8"})
    neither, both = deployment.command("worker", RETRY_POLICIES=""), deployment.command("worker", "--timers-only")
    for refused in (neither, both):
        assert refused.returncode == 1
        assert "RETRY_POLICIES" in refused.stderr
        assert "--timers-only" in refused.stderr
    deployment.environ["RETRY_POLICIES"] = ""
    worker, api = deployment.worker("a").start("-m", "retry", "worker", "--timers-only"), Api(deployment).start()
    worker.await_ready()
    with Host() as host:
        timer_id = api.make(host.url, after="0s")
        await_that("it is delivered", lambda: api.state(timer_id).get("state") == "delivered")
    worker.terminate()


def test_2_15_2_16_hosts_that_cannot_be_reached_end_no_worker_and_open_their_breaker(running: Running) -> None:
    _, api, worker = running
    with socket.socket() as closed, Host(reset) as resetting, Host(hang) as hanging, Host(says(b"no http")) as odd:
        closed.bind(("127.0.0.1", 0))
        bad = [f"http://127.0.0.1:{closed.getsockname()[1]}/", resetting.url, hanging.url, odd.url]
        once = {"max_attempts": 0}
        failing = {api.make(url, after="0s", policy=once): url for url in bad}
        for timer_id in failing:
            await_that("it is given up", lambda t=timer_id: api.state(t).get("state") == "parked")
        errors = {failing[t]: api.state(t)["last_call"]["error"] for t in failing}
        assert errors == dict(zip(bad, ["unreachable", "reset", "timeout", "bad_answer"], strict=True))
        more = [api.make(resetting.url, after="0s", policy=once) for _ in range(12)]
        await_that("its breaker is open", lambda: "breaker" in worker.get("/health/ready")[1])
        assert len(resetting.calls) < 1 + len(more)
        with Host() as fine:
            good = api.make(fine.url, after="0s")
            await_that("others go on", lambda: api.state(good).get("state") == "delivered")
        resetting.behave = status(200)
        for timer_id in more:
            await_that("all are called in the end", lambda t=timer_id: api.state(t).get("state") in ("delivered", "parked"))
        assert worker.running()
        assert worker.ready()


def test_parked_timers_lie_in_a_topic_that_forgets_them_and_a_deployment_without_it_is_told(deploy: Deploy) -> None:
    """Before there was that topic, they lay with their URLs and headers where records are kept for ever."""
    deployment = deploy({"orders": 1}, shards=2, environ={"RETRY_WEBHOOK_ALLOW": "127.0.0.0/8"})
    own = deployment.names
    kept_ms = topics.read_retention_ms(deployment.admin, [own.parked_timers, own.parked])
    assert kept_ms == {own.parked_timers: 30 * 86_400_000}
    deployment.admin.delete_topics([own.parked_timers])[own.parked_timers].result(20.0)
    await_that("it is gone", lambda: not topics.describe(deployment.admin, [own.parked_timers]))
    told = deployment.command("topics", "check")
    assert told.returncode == 1
    assert f"{own.parked_timers} is missing" in told.stderr
    assert "retry topics create" in told.stderr
    worker = deployment.worker("a").start()
    api = Api(deployment).start()
    worker.await_ready()
    assert f"{own.parked_timers} is missing" in worker.log()
    with Host(status(410)) as gone:
        timer_id = api.make(gone.url, after="0s")
        await_that("it is parked as before", lambda: read(deployment.bootstrap_servers, [own.parked], COMMITTED))
        (parked,) = read(deployment.bootstrap_servers, [own.parked], COMMITTED)
        assert parked.key == timer_id.encode()
    assert f"created {own.parked_timers}" in deployment.command("topics", "create").stdout
