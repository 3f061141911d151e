"""The chart renders, is valid Kubernetes, sets every variable of a worker, and refuses what cannot be."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
import yaml

from retry import settings
from retry.__main__ import main as cli
from retry.policies.policy_file import load
from retry.scheduling.messages import settings as scheduler_settings
from retry.settings import Settings
from tests.support.chart import CHART, ROOT
from tests.support.promql import DASHBOARDS, RULES, TARGET_LABELS, read, series
from tests.support.rendered import FULL, MINIMAL, Object, containers, objects, one, pod_templates, refusal, render_chart
from tests.support.tools import run

pytestmark = pytest.mark.check

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
OWN_SCHEMAS = ROOT / "tests" / "chart" / "schemas"
KUBERNETES = Path(str(files("kubernetes_validate"))) / "kubernetes-json-schema"
# The oldest that the chart allows, and the newest that there are schemas of.
VERSIONS = ["v1.27.0", "v1.37.0"]
KINDS = (
    "statefulset-apps-v1", "deployment-apps-v1", "cronjob-batch-v1", "service-v1", "serviceaccount-v1", "configmap-v1",
    "persistentvolumeclaim-v1", "poddisruptionbudget-policy-v1", "networkpolicy-networking-v1", "ingress-networking-v1", "pod-v1",
)  # fmt: skip
# Variables that the chart sets from something else than `settings`.
ELSEWHERE = {
    "bootstrap_servers", "app_id", "policies", "data_dir", "instance", "http_addr", "api_addr", "api_tokens", "webhook_secrets",
    "webhook_certificates",
    "encryption_keys",
    "api_metrics_open", "api_tls_cert", "api_tls_key", "scheduler_tls_cert", "scheduler_tls_key",
    "console_addr", "console_url", "console_tokens", "console_tls_cert", "console_tls_key",
    "console_tls_proxy", "console_oidc_issuer", "console_oidc_client_id", "console_oidc_client_secret", "console_oidc_claim",
    "console_oidc_roles", "console_proxy_from", "console_proxy_secret", "console_proxy_roles", "console_session_key",
    "console_session_s", "console_notifications", "console_schedulers", "console_advice", "console_decoders",
}  # fmt: skip

def environment(container: Object) -> dict[str, str]:
    """Read the variables of a container, with something in the place of what a pod is given by Kubernetes."""
    return {each["name"]: each.get("value", "given") for each in container["env"]}


@pytest.mark.parametrize("values", [MINIMAL, FULL], ids=lambda path: path.stem)
def test_lint(values: Path) -> None:
    linted = run("helm", "lint", "--strict", CHART, "-f", values)
    assert linted.returncode == 0, linted.stdout + linted.stderr


@pytest.fixture(scope="session")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Schemas of each version, a folder each: every one whole, since their references lead to an address on the net."""
    folder = tmp_path_factory.mktemp("schemas")
    for version in VERSIONS:
        source = KUBERNETES / f"{version}-local-strict"
        shared = {"$defs": json.loads((source / "_definitions.json").read_text())["$defs"]}
        (folder / version).mkdir()
        for file in [source / f"{name}.json" for name in KINDS]:
            schema = json.loads(file.read_text().replace("/api/_definitions.json#", "#"))
            del schema["$id"]
            (folder / version / file.name).write_text(json.dumps(schema | shared))
    return folder


def conforms(manifests: str, schemas: Path) -> tuple[int, Object]:
    """Exit code and what kubeconform found."""
    name = "{{.ResourceKind}}{{.KindSuffix}}.json"
    locations = [option for folder in (schemas, OWN_SCHEMAS) for option in ("-schema-location", str(folder / name))]
    checked = run("kubeconform", "-strict", "-summary", "-output", "json", *locations, stdin=manifests)
    return checked.returncode, json.loads(checked.stdout)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", [MINIMAL, FULL], ids=lambda path: path.stem)
def test_everything_is_valid_and_strict(values: Path, version: str, schemas: Path) -> None:
    code, found = conforms(render_chart(values), schemas / version)
    assert (code, found["resources"]) == (0, [])
    assert found["summary"] == {"valid": len(objects(values)), "invalid": 0, "errors": 0, "skipped": 0}


def test_kubeconform_finds_what_is_wrong(schemas: Path) -> None:
    wrong = render_chart(FULL).replace("triggers:", "trigger:").replace("maxUnavailable: 1", "maxAvailable: 1")
    code, found = conforms(wrong, schemas / VERSIONS[0])
    assert code == 1
    assert {each["kind"] for each in found["resources"]} == {"ScaledObject", "PodDisruptionBudget"}


REFUSED = {
    "worker.replicas=0": "/worker/replicas",
    "worker.replicas=many": "/worker/replicas",
    "worker.persistence.size=10": "/worker/persistence/size",
    "settings.sweepIntervalMs=0": "/settings/sweepIntervalMs",
    "settings.standby=2": "/settings/standby",
    "settings.stalled=60": "'stalled' not allowed",
    "appId=a b": "/appId",
    "listen=127.0.0.1": "/listen",
    "kafka.bootstrapServers=kafka": "/kafka/bootstrapServers",
    "kafka.secretProperties.sasl\\.password=hunter2": "/kafka/secretProperties/sasl.password",
    "image.digest=latest": "/image/digest",
    "scheduler.sinceDelta=1": "/scheduler/sinceDelta",
    "keda.dueSoon=0": "/keda/dueSoon",
    "networkPolicy.kafkaTo=null": "networkPolicy.kafkaTo is not set: name peers",
    "networkPolicy.kafkaTo[0].namespaces=x": "/networkPolicy/kafkaTo/0",
    "networkPolicy.kafkaTo[0].ipBlock.except[0]=10.0.0.0/8": "/networkPolicy/kafkaTo/0",
    "networkPolicy.kafkaPorts=null": "missing property 'kafkaPorts'",
    "registry.url=https://registry": "networkPolicy.registryTo is not set",
    "console.enabled=true,console.tokens.name=t,console.tls.name=t,console.notifications.name=n": "networkPolicy.consoleTo is",
    "kafka.bootstrapServers=": "kafka.bootstrapServers is not set: give host:port of the brokers",
    "policies.file=": "no policies: give --set-file policies.file=policies.yaml",
    "policies.existingConfigMap=other": "policies.file and policies.existingConfigMap are both set",
    "worker.replicas=9": "worker.replicas x worker.processes is more than settings.shards (8)",
    "api.enabled=true": "api.tokens.name is not set: name a Secret",
    "console.enabled=true": "console.tokens.name and console.oidc.issuer are not set",
    "console.enabled=true,console.tokens.name=t": "console.tls is not set",
    "console.enabled=true,console.tokens.name=t,console.tls.proxy=true": "console.url is not set",
    "console.enabled=true,console.tls.name=t,console.oidc.issuer=https://login": "give console.oidc.clientId",
    "console.enabled=true,console.tls.name=t,console.proxy.from=10.0.0.5": "console.proxy is set in part",
    "console.enabled=true,console.tokens.name=t,console.tls.name=t,console.proxy.secret.name=p": "console.proxy is set in part",
    "console.proxy.from=proxy.local": "/console/proxy/from",
    "console.url=retry.example.com": "/console/url",
    "api.ingress.enabled=true": "api.ingress.host is not set",
    "scheduler.httpRoute.enabled=true,scheduler.httpRoute.hostnames[0]=x": "scheduler.httpRoute: give parentRefs",
    "worker.extraVolumes[0].emptyDir.sizeLimit=1Gi": "/worker/extraVolumes/0",
    "extraObjects[0].kind=ConfigMap": "/extraObjects/0",
    "console.sessionS=1": "/console/sessionS",
    "keda.enabled=true": "keda.serverAddress is not set",
    "keda.enabled=true,keda.serverAddress=http://p,keda.maxReplicas=9": "keda.maxReplicas x worker.processes is more than",
    "keda.enabled=true,keda.serverAddress=http://p,keda.minReplicas=5,keda.maxReplicas=4": "keda.minReplicas is more than",
    "kafka.properties.sasl\\.password=x": "sasl.password is a secret; name a Secret under kafka.secretProperties",
    "kafka.properties.ssl\\.key\\.pem=x": "kafka.properties: ssl.key.pem is a secret",
    "registry.properties.basic\\.auth\\.user\\.info=u:p": "registry.properties: basic.auth.user.info is a secret",
}


@pytest.mark.parametrize(("wrong", "said"), REFUSED.items(), ids=REFUSED)
def test_what_cannot_be_is_refused_and_named(wrong: str, said: str) -> None:
    assert said in refusal("--set", wrong)


def test_nothing_can_be_rendered_unless_brokers_and_policies_are_named() -> None:
    assert "kafka.bootstrapServers is not set" in refusal(values=CHART / "values.yaml")


def test_the_apis_metrics_are_shown_to_prometheus_without_a_token_unless_the_values_say_otherwise() -> None:
    def read_api_setting(*options: str) -> object:
        (container,) = one("Deployment", "demo-retry-api", FULL, *options)["spec"]["template"]["spec"]["containers"]
        return {each["name"]: each.get("value") for each in container["env"]}["RETRY_API_METRICS_OPEN"]

    assert (read_api_setting(), read_api_setting("--set", "api.metricsOpen=false")) == ("1", "0")


def test_a_secret_makes_the_api_and_the_scheduler_serve_https() -> None:
    served = {"demo-retry-api": ("api", "RETRY_API"), "demo-retry-scheduler": ("rest", "RETRY_SCHEDULER")}
    for name, (secret, prefix) in served.items():
        pod = one("Deployment", name)["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        (volume,) = [each for each in pod["volumes"] if each["name"] == "server-tls"]
        assert volume["secret"]["secretName"] == f"{secret}-tls"
        (mount,) = [each for each in container["volumeMounts"] if each["name"] == "server-tls"]
        environ = environment(container)
        files = {environ[f"{prefix}_TLS_CERT"], environ[f"{prefix}_TLS_KEY"]}
        assert files == {f"{mount['mountPath']}/tls.crt", f"{mount['mountPath']}/tls.key"}
    (container,) = one("Deployment", "demo-retry-api")["spec"]["template"]["spec"]["containers"]
    assert {container[f"{kind}Probe"]["httpGet"]["scheme"] for kind in ("startup", "liveness", "readiness")} == {"HTTPS"}
    schemes = {name: one("ServiceMonitor", name)["spec"]["endpoints"][0].get("scheme") for name in (*served, "demo-retry-worker")}
    assert schemes == {"demo-retry-api": "https", "demo-retry-scheduler": None, "demo-retry-worker": None}
    without = one("Deployment", "demo-retry-api", FULL, "--set", "api.tlsSecret=")["spec"]["template"]["spec"]["containers"][0]
    assert without["readinessProbe"]["httpGet"]["scheme"] == "HTTP"
    assert not any("TLS" in name for name in environment(without))


def test_every_variable_can_be_set_and_has_the_workers_default_and_bounds() -> None:
    fields = {field.name: field for field in msgspec.structs.fields(Settings)}
    free = {name for name in fields if name not in settings.NOT_FROM_ENVIRONMENT | ELSEWHERE}
    in_camel_case = {name: re.sub(r"_(\w)", lambda match: match[1].upper(), name) for name in free}
    described = SCHEMA["properties"]["settings"]["properties"]
    assert set(in_camel_case.values()) == set(VALUES["settings"]) == set(described)
    assert {name: VALUES["settings"][camel] for name, camel in in_camel_case.items()} == {n: fields[n].default for n in free}
    bounds = {name: (low, high) for name, low, high in settings.BOUNDS}
    for name, camel in in_camel_case.items():
        if fields[name].type is int:
            assert (described[camel]["minimum"], described[camel]["maximum"]) == bounds[name]


@pytest.mark.parametrize("values", [MINIMAL, FULL], ids=lambda path: path.stem)
def test_what_pods_are_given_is_what_the_program_reads(values: Path) -> None:
    for name, environ in ((name, environment(container)) for name, container, _ in containers(values)):
        assert settings.list_unknown_variables(environ) == []
        if "scheduler" in name:
            read_back = scheduler_settings.read_scheduler_settings(environ)
            assert (read_back.topics, read_back.worker.app_id) == (("schedules", "^schedules-.*"), "schedules")
            assert (read_back.since_delta, read_back.grace_s, read_back.allowed) == (-1, 3600, ("videos",))
            assert str(read_back.server) == "[::]:8000"
            # Letters are the workers' business.
            assert read_back.worker.policies is None
        else:
            assert settings.read_settings(environ).app_id == ("payments" if values is FULL else "retry")


def commands_run(part: str) -> dict[str, str | None]:
    """List by container the command that its arguments come to; click refuses options that it does not have."""
    found = {}
    for name, container, _ in containers(FULL):
        command, arguments = cli, list(container["args"])
        while isinstance(command, click.Group) and arguments and arguments[0] in command.commands:
            command = command.commands[arguments.pop(0)]
        if part in name:
            found[name.partition("demo-retry-")[2]] = command.make_context(str(command.name), arguments).info_name
    return found


def test_what_pods_run_is_a_command_with_these_options() -> None:
    assert commands_run("worker") == {"worker/topics": "create", "worker/worker": "worker"}
    assert commands_run("console") == {"console/topics": "create", "console/console": "console"}
    assert commands_run("api") == {"api/topics": "create", "api/api": "api"}
    assert commands_run("scheduler") == {"scheduler/scheduler": "scheduler"}


@pytest.mark.skipif("analytics" not in cli.commands, reason="this tree has no `retry analytics` yet")
def test_what_the_job_runs_is_a_command_with_these_options() -> None:
    assert commands_run("analytics") == {
        "analytics/ingest": "ingest", "analytics/compact": "compact", "analytics/report": "report",
    }  # fmt: skip


def test_the_image_is_the_one_that_pods_expect() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    targets = [line.split(" AS ")[1] for line in lines if line.startswith("FROM")]
    assert targets == ["build", "build-analytics", "base", "retry", "scheduler", "analytics"]
    assert [line for line in lines if line.startswith("VOLUME")] == ["VOLUME /data", "VOLUME /tmp"]
    users = {f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" for _, _, pod in containers(FULL)}
    assert users == {line.removeprefix("USER ") for line in lines if line.startswith("USER") and "root" not in line}
    assert "ENTRYPOINT [\"retry\"]" in lines


def test_every_value_of_settings_arrives() -> None:
    (environ,) = [environment(container) for name, container, _ in containers(FULL) if name == "demo-retry-worker/worker"]
    found = settings.read_settings(environ)
    assert (found.shards, found.sweep_interval_ms, found.batch_records, found.batch_bytes) == (64, 50, 10_000, 32 << 20)
    assert (found.table_cache_bytes, found.lineages, found.stalled_s, found.standby) == (256 << 20, 1_000_000, 120, 1)
    assert (found.calls, found.calls_per_host, found.call_timeout_ms) == (1_024, 16, 30_000)
    assert (found.positions_every_s, found.traces) == (30, 1)
    assert found.webhook_allow == "10.1.0.0/16,hooks.internal"
    assert found.webhook_secrets == Path("/etc/retry/webhook/whsec")
    assert found.webhook_certificates == Path("/etc/retry/webhook-certificates")
    assert found.encryption_keys == Path("/etc/retry/encryption/of-letters")
    assert found.kafka == {
        "security.protocol": "SASL_SSL", "sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "retry", "sasl.password": "given",
        "ssl.ca.location": "/etc/retry/tls/ca.crt", "socket.keepalive.enable": "true", "queue.buffering.max.kbytes": "131072",
    }  # fmt: skip
    assert found.registry == {"url": "https://registry.local", "basic.auth.user.info": "given"}
    assert found.http_host_port() == ("::", 8080)


def test_the_console_is_given_all_that_it_needs_beyond_loopback() -> None:
    def read_settings(*options: str) -> Settings:
        (container,) = one("Deployment", "demo-retry-console", FULL, *options)["spec"]["template"]["spec"]["containers"]
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        read = settings.read_settings(environment(container))
        secrets = (read.console_tokens, read.console_tls_cert, read.console_oidc_client_secret)
        of_proxy = (read.console_proxy_secret, read.console_proxy_roles, read.console_session_key)
        files = (*secrets, *of_proxy, read.console_oidc_roles, read.console_advice, read.console_notifications)
        assert {str(file.parent) for file in files if file} <= mounts
        return read

    told = read_settings()
    assert told.console_addr == "[::]:8082"
    assert (told.console_url, told.console_session_s) == ("https://retry.local", 3_600)
    assert told.console_tokens == Path("/etc/retry/tokens/people")
    assert (told.console_tls_cert, told.console_tls_proxy) == (Path("/etc/retry/console-tls/tls.crt"), 0)
    assert (told.console_oidc_issuer, told.console_oidc_client_id) == ("https://login.local", "retry")
    assert (told.console_oidc_claim, told.console_notifications) == ("teams", Path("/etc/retry/notifications/notifications.yaml"))
    assert told.console_proxy_from == "10.0.0.5,10.1.0.0/24"
    assert (told.console_proxy_secret, told.console_proxy_roles) == (
        Path("/etc/retry/proxy/secret"), Path("/etc/retry/proxy-roles/roles")
    )  # fmt: skip
    assert told.console_session_key == Path("/etc/retry/session/session-key")
    assert told.console_schedulers == "eu=http://scheduler.eu:8000"
    assert told.console_advice == Path("/etc/retry/advice/advice.json")
    proxied = read_settings(
        "--set", "console.tls.name=,console.tls.proxy=true,console.oidc.issuer=,console.oidc.clientSecret.name="
    )
    assert (proxied.console_tls_cert, proxied.console_tls_proxy, proxied.console_oidc_client_secret) == (None, 1, None)
    off = read_settings(
        "--set", "console.proxy.from=,console.proxy.secret.name=,console.proxy.roles.name=,console.sessionKey.name="
    )
    assert (off.console_proxy_from, off.console_proxy_secret, off.console_session_key) == ("", None, None)
    alone = read_settings("--set", "console.tokens.name=,console.oidc.issuer=,console.oidc.clientSecret.name=")
    assert (alone.console_tokens, alone.console_oidc_issuer, alone.console_proxy_from) == (None, "", "10.0.0.5,10.1.0.0/24")


def test_the_console_is_asked_over_tls_where_it_speaks_it() -> None:
    def schemes(*options: str) -> set[str]:
        (container,) = one("Deployment", "demo-retry-console", FULL, *options)["spec"]["template"]["spec"]["containers"]
        (endpoint,) = one("ServiceMonitor", "demo-retry-console", FULL, *options)["spec"]["endpoints"]
        probes = {container[probe]["httpGet"]["scheme"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
        return probes | {endpoint.get("scheme", "http").upper()}

    assert (schemes(), schemes("--set", "console.tls.name=,console.tls.proxy=true")) == ({"HTTPS"}, {"HTTP"})


@pytest.mark.parametrize("values", [MINIMAL, FULL], ids=lambda path: path.stem)
def test_pods_are_restricted(values: Path) -> None:
    for name, container, pod in containers(values):
        security = pod["securityContext"]
        assert security["runAsNonRoot"] and security["runAsUser"], name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False
        # Else there are RETRY_WORKER_PORT and the like, which no program of ours knows.
        assert pod["enableServiceLinks"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert {"requests", "limits"} <= container["resources"].keys(), name
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        volumes = {volume["name"] for volume in pod["volumes"]} | ({"data"} if "worker" in name else set())
        assert {mount["name"] for mount in mounts.values()} <= volumes, name
        # Whatever is written lies in one volume; analytics, whose results stay, has another for what does not.
        environ, writable = environment(container), {path for path in mounts if not mounts[path].get("readOnly")}
        assert writable == ({"/data", "/tmp"} if "analytics" in name else {"/data"}), name
        assert environ["RETRY_DATA_DIR"] == environ["TMPDIR"] == max(writable), name


def test_there_is_no_secret_in_what_is_rendered_only_names_of_some() -> None:
    assert "Secret" not in {each["kind"] for each in objects()}
    given = {each["name"]: each for _, container, _ in containers(FULL) for each in container["env"]}
    for name in ("RETRY_KAFKA_SASL_PASSWORD", "RETRY_REGISTRY_BASIC_AUTH_USER_INFO"):
        assert given[name]["valueFrom"]["secretKeyRef"] and "value" not in given[name]


def test_policies_are_those_that_health_will_tell() -> None:
    about = one("ConfigMap", "demo-retry-policies", MINIMAL)
    assert about["data"]["policies.yaml"] == yaml.safe_load(MINIMAL.read_text())["policies"]["file"]


def test_the_digest_is_the_workers(tmp_path: Path) -> None:
    about = one("ConfigMap", "demo-retry-policies", MINIMAL)
    file = tmp_path / "policies.yaml"
    file.write_text(about["data"]["policies.yaml"])
    assert about["metadata"]["annotations"]["retry/policies-sha256"] == load(file).digest


def test_a_changed_policy_file_restarts_nobody_unless_that_is_wished() -> None:
    def template(text: str, wished: str) -> Object:
        options = ("--set-string", f"policies.file={text}", "--set", f"policies.restartOnChange={wished}")
        found: Object = one("StatefulSet", "demo-retry-worker", MINIMAL, *options)["spec"]["template"]
        return found

    assert template("a", "false") == template("b", "false")
    assert template("a", "true") != template("b", "true")


def test_selectors_find_what_they_are_for() -> None:
    pods = {name: template["metadata"]["labels"] for name, template in pod_templates(FULL)}

    def select_pods(selector: Object) -> list[str]:
        return [name for name, labels in pods.items() if selector.items() <= labels.items()]

    for component in ("worker", "api", "scheduler", "console"):
        name = f"demo-retry-{component}"
        service = one("Service", name)
        assert select_pods(service["spec"]["selector"]) == [name]
        # There is one console, and none while it is moved.
        if component != "console":
            assert select_pods(one("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"]) == [name]
        assert select_pods(one("NetworkPolicy", name)["spec"]["podSelector"]["matchLabels"]) == [name]
        monitored = one("ServiceMonitor", name)["spec"]
        assert monitored["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert {endpoint["port"] for endpoint in monitored["endpoints"]} <= {port["name"] for port in service["spec"]["ports"]}
    assert one("StatefulSet", "demo-retry-worker")["spec"]["serviceName"] == "demo-retry-worker"


def test_an_end_waits_for_the_drain_and_a_start_for_brokers() -> None:
    spec = one("StatefulSet", "demo-retry-worker", MINIMAL)["spec"]["template"]["spec"]
    # A transaction that is under way, calls that have no answer yet, the tables' last writes.
    assert spec["terminationGracePeriodSeconds"] >= 2 * VALUES["settings"]["callTimeoutMs"] / 1_000
    (worker,) = spec["containers"]
    paths = {name: worker[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {"startupProbe": "/health/live", "livenessProbe": "/health/live", "readinessProbe": "/health/ready"}
    assert worker["startupProbe"]["periodSeconds"] * worker["startupProbe"]["failureThreshold"] >= 300
    # Whoever stands still ends by itself, and says why; nobody is to end it before.
    live = worker["livenessProbe"]
    assert live["periodSeconds"] * live["failureThreshold"] > VALUES["settings"]["stalledS"]


def test_workers_are_scaled_by_what_is_due_soon() -> None:
    assert one("StatefulSet", "demo-retry-worker", MINIMAL)["spec"]["replicas"] == 2
    assert "replicas" not in one("StatefulSet", "demo-retry-worker")["spec"]
    (trigger,) = one("ScaledObject", "demo-retry-worker")["spec"]["triggers"]
    (asked,) = read(trigger["metadata"]["query"])
    assert asked.metric == "retry_entries_due_soon"
    assert asked.labels <= series()[asked.metric] | TARGET_LABELS


def test_dashboards_and_rules_are_rendered_as_they_are_written() -> None:
    shown = {each["metadata"]["name"]: each for each in objects() if "grafana_dashboard" in each["metadata"].get("labels", {})}
    assert shown.keys() == {f"demo-retry-{name}" for name in DASHBOARDS}
    for name, dashboard in DASHBOARDS.items():
        assert json.loads(shown[f"demo-retry-{name}"]["data"][f"retry-{name}.json"]) == dashboard
    groups = one("PrometheusRule", "demo-retry")["spec"]["groups"]
    assert [rule for group in groups for rule in group["rules"]] == RULES


def test_what_needs_definitions_of_others_is_off_until_it_is_wished() -> None:
    kinds = {each["kind"] for each in objects(MINIMAL)}
    assert kinds == {"StatefulSet", "Service", "ServiceAccount", "ConfigMap", "PodDisruptionBudget", "NetworkPolicy", "Pod"}


def test_the_versions_are_those_of_the_program() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert chart["appVersion"] == version
    images = yaml.safe_load(chart["annotations"]["artifacthub.io/images"])
    named = VALUES["image"]["repository"], VALUES["analytics"]["image"]["repository"]
    assert [each["image"] for each in images] == [f"{name}:{version}" for name in named]


def test_notes_say_where_to_look() -> None:
    done = run("helm", "install", "demo", CHART, "--dry-run=client", "-f", MINIMAL, "--namespace", "retry")
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    assert "port-forward demo-retry-worker-0 8080" in notes and "sha256" in notes


def test_what_is_reached_from_outside_is_answered_for_by_that_name() -> None:
    ingress, route = one("Ingress", "demo-retry-api"), one("HTTPRoute", "demo-retry-console")
    backend = ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert (backend["name"], backend["port"]["number"]) == ("demo-retry-api", 443)
    assert route["spec"]["rules"] == [{"backendRefs": [{"name": "demo-retry-console", "port": 443}]}]
    (environ,) = [environment(container) for name, container, _ in containers(FULL) if name == "demo-retry-api/api"]
    assert {"timers.local", "retry.local", "demo-retry-api", "*.svc"} <= set(environ["RETRY_HTTP_HOSTS"].split(","))


def test_openshift_chooses_the_user_of_every_pod() -> None:
    def identities(*options: str) -> set[str]:
        made = objects(FULL, *options)
        specs = [each["spec"]["template"]["spec"] for each in made if each["kind"] in ("StatefulSet", "Deployment")]
        specs += [each["spec"] for each in made if each["kind"] == "Pod"]
        return {name for spec in specs for name in spec["securityContext"]}

    named = {"runAsUser", "runAsGroup", "fsGroup"}
    assert named <= identities()
    assert identities("--api-versions", "security.openshift.io/v1") & named == set()
    assert "runAsNonRoot" in identities("--api-versions", "security.openshift.io/v1")


def test_volumes_and_objects_of_ones_own_are_added() -> None:
    pod = one("StatefulSet", "demo-retry-worker")["spec"]["template"]["spec"]
    assert {"name": "ca", "configMap": {"name": "company-ca"}} in pod["volumes"]
    mounted = [{mount["mountPath"] for mount in each["volumeMounts"]} for each in (*pod["initContainers"], *pod["containers"])]
    assert all("/etc/company" in paths for paths in mounted)
    assert one("ConfigMap", "demo-notes")["data"] == {"owner": "platform"}


def test_helm_test_asks_the_brokers_with_what_workers_have() -> None:
    pod = one("Pod", "demo-retry-test")
    (container,) = pod["spec"]["containers"]
    assert (pod["metadata"]["annotations"]["helm.sh/hook"], container["args"]) == ("test", ["topics", "check"])
    assert settings.read_settings(environment(container)).app_id == "payments"
