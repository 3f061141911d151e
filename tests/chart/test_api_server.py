"""The chart on a real API server: install, upgrade, rollback, and what the server refuses. No kubelet: its pods are not run.

Whether pods may be made is asked with server-side dry runs, which go through admission as any other.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.api_server import FOLDER, ApiServer
from tests.support.chart import CHART
from tests.support.process import await_that
from tests.support.rendered import FULL, MINIMAL, objects

pytestmark = pytest.mark.release

Object = dict[str, Any]
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest"}
APPS = "/apis/apps/v1/namespaces/retry"
WORKER = f"{APPS}/statefulsets/demo-retry-worker"
PLURALS = {"NetworkPolicy": "networkpolicies", "Ingress": "ingresses"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with ApiServer(tmp_path_factory.mktemp("api-server")) as running:
        running.make("/api/v1/namespaces", {"metadata": {"name": "retry", "labels": RESTRICTED}})
        running.make("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 1})
        definitions = [yaml.safe_load(file.read_text()) for file in (FOLDER / "definitions").iterdir()]
        for definition in definitions:
            running.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        for definition in definitions:
            (version,) = [each["name"] for each in definition["spec"]["versions"] if each["storage"]]
            path = f"/apis/{definition['spec']['group']}/{version}/{definition['spec']['names']['plural']}"
            await_that(f"{path} is served", lambda path=path: running.ask("GET", path)[0] == http.client.OK)  # type: ignore[misc]
        yield running


@pytest.fixture
def helm(server: ApiServer) -> Iterator[Any]:
    """helm, whose release `demo` is gone after the test."""

    def succeed(*arguments: str | Path) -> str:
        done = server.helm(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield succeed
    server.helm("uninstall", "demo")
    server.ask("DELETE", "/api/v1/namespaces/retry/persistentvolumeclaims/demo-retry-analytics")


def path_of(manifest: Object) -> str:
    """Return the path at which the server has an object."""
    version, kind = manifest["apiVersion"], manifest["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/retry/{PLURALS.get(kind, kind.lower() + 's')}/{manifest['metadata']['name']}"


def paths_of(values: Path) -> list[str]:
    """List the paths at which the server has what an installation makes; hooks are made by commands of their own."""
    return [path_of(each) for each in objects(values) if "helm.sh/hook" not in each["metadata"].get("annotations", {})]


def missing_of(server: ApiServer, values: Path) -> list[str]:
    return [path for path in paths_of(values) if server.ask("GET", path)[0] != http.client.OK]


def pods_of(server: ApiServer) -> Iterator[Object]:
    """A pod for each workload, as its controller would make it."""
    for kind in ("statefulsets", "deployments"):
        for workload in server.get(f"{APPS}/{kind}")["items"]:
            claims = workload["spec"].get("volumeClaimTemplates", [])
            yield _pod(workload["spec"]["template"], [each["metadata"]["name"] for each in claims])
    for job in server.get("/apis/batch/v1/namespaces/retry/cronjobs")["items"]:
        yield _pod(job["spec"]["jobTemplate"]["spec"]["template"], [])


def _pod(template: Object, claims: list[str]) -> Object:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    spec = template["spec"] | {"volumes": template["spec"]["volumes"] + volumes}
    return {"metadata": {"generateName": "pod-", "labels": template["metadata"]["labels"]}, "spec": spec}


def test_everything_is_made_and_its_pods_are_let_in_where_only_restricted_ones_are(server: ApiServer, helm: Any) -> None:
    helm("install", "demo", CHART, "-f", FULL)
    assert missing_of(server, FULL) == []
    pods = list(pods_of(server))
    assert {pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in pods} == {
        "worker", "api", "console", "scheduler", "analytics",
    }  # fmt: skip
    for pod in pods:
        server.make("/api/v1/namespaces/retry/pods", pod, dryRun="All", fieldValidation="Strict")
    # And the server looks at them.
    del pods[0]["spec"]["containers"][0]["securityContext"]["capabilities"]
    status, told = server.ask("POST", "/api/v1/namespaces/retry/pods", pods[0], dryRun="All")
    assert (status, "unrestricted capabilities" in told["message"]) == (http.client.FORBIDDEN, True)
    helm("uninstall", "demo")
    left = [path for path in paths_of(FULL) if server.ask("GET", path)[0] == http.client.OK]
    # What analytics has counted outlives a release.
    assert [path.rpartition("/")[2] for path in left] == ["demo-retry-analytics"]


def test_an_upgrade_changes_what_it_should_and_a_rollback_brings_back_what_was(server: ApiServer, helm: Any) -> None:
    helm("install", "demo", CHART, "-f", MINIMAL)
    before = server.get(WORKER)["spec"]
    changed = "worker.replicas=3,image.tag=next,settings.standby=1,api.enabled=true,api.tokens.name=t"
    helm("upgrade", "demo", CHART, "-f", MINIMAL, "--set", changed)
    after = server.get(WORKER)["spec"]
    assert (after["replicas"], after["template"]["spec"]["containers"][0]["image"]) == (3, "dead-letter-retry:next")
    assert server.ask("GET", f"{APPS}/deployments/demo-retry-api")[0] == http.client.OK
    helm("rollback", "demo", "1")
    assert server.get(WORKER)["spec"] == before
    assert server.ask("GET", f"{APPS}/deployments/demo-retry-api")[0] == http.client.NOT_FOUND


def test_a_dry_run_on_the_server_makes_nothing(server: ApiServer, helm: Any) -> None:
    shown = helm("install", "demo", CHART, "-f", FULL, "--dry-run=server")
    assert "kind: StatefulSet" in shown
    assert missing_of(server, FULL) == paths_of(FULL)


REFUSED = {
    "networkPolicy.kafkaTo[0].ipBlock.cidr=10.2.0.0": ("ipBlock.cidr", "10.2.0.0"),
    "commonLabels.team=a b": ("metadata.labels", "a b"),
    "analytics.schedule=61 * * * *": ("spec.schedule", "61"),
    "worker.resources.requests.memory=2Gi": ("resources.requests", "must be less than or equal to memory limit"),
}


@pytest.mark.parametrize(("wrong", "said"), REFUSED.items(), ids=REFUSED)
def test_values_that_only_the_server_knows_to_be_wrong_are_named_and_leave_nothing(
    server: ApiServer, helm: Any, wrong: str, said: tuple[str, ...]
) -> None:
    done = server.helm("install", "demo", CHART, "-f", FULL, "--set", wrong, "--rollback-on-failure", "--timeout", "1m")
    assert done.returncode != 0
    assert all(words in done.stderr for words in said), done.stderr
    names = {path.rpartition("/")[2] for path in paths_of(FULL) if server.ask("GET", path)[0] == http.client.OK}
    assert names <= {"demo-retry-analytics"}


def test_a_size_of_volumes_that_changes_is_refused_and_the_release_goes_on(server: ApiServer, helm: Any) -> None:
    helm("install", "demo", CHART, "-f", MINIMAL)
    before = server.get(WORKER)["spec"]
    done = server.helm("upgrade", "demo", CHART, "-f", MINIMAL, "--set", "worker.persistence.size=20Gi")
    assert done.returncode != 0
    assert "spec.volumeClaimTemplates" in done.stderr and "field is immutable" in done.stderr, done.stderr
    assert server.get(WORKER)["spec"] == before
    helm("upgrade", "demo", CHART, "-f", MINIMAL, "--set", "worker.replicas=3")
    assert server.get(WORKER)["spec"]["replicas"] == 3
