"""Ports of pods are closed but to those whom the values name, and pods reach only what is named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rendered import FULL, MINIMAL, Object, containers, one

pytestmark = pytest.mark.check


def list_opened_ports(component: str, *options: str) -> dict[str, list[Any]]:
    """List by direction of a component's NetworkPolicy to whom which TCP ports are open."""
    policy = one("NetworkPolicy", f"demo-retry-{component}", FULL, *options)["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    return {way: [(rule[peers], _tcp(rule)) for rule in policy[way]] for way, peers in (("ingress", "from"), ("egress", "to"))}


def _tcp(rule: Object) -> list[int]:
    return [port["port"] for port in rule["ports"] if port["protocol"] == "TCP"]


def block(cidr: str) -> list[Object]:
    return [{"ipBlock": {"cidr": cidr}}]


PROMETHEUS = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
TIMERS, PROXY = ([{"podSelector": {"matchLabels": labels}}] for labels in ({"uses": "timers"}, {"app": "ingress"}))
KAFKA, REGISTRY, LOGIN, EXTRA = block("10.2.0.0/16"), block("10.3.0.1/32"), block("10.4.0.0/24"), block("10.1.0.0/16")
ASKED = {
    "worker": [(PROMETHEUS, [8080])],
    "api": [(PROMETHEUS, [8081]), (TIMERS, [8081])],
    "scheduler": [(PROMETHEUS, [8001]), (TIMERS, [8000])],
    "console": [(PROMETHEUS, [8082]), (PROXY, [8082])],
    "analytics": [],
}


@pytest.mark.parametrize("component", ASKED)
def test_ports_are_open_to_whom_they_are_for_and_to_nobody_else(component: str) -> None:
    found = list_opened_ports(component)["ingress"]
    assert found == ASKED[component]
    served = [of.get("ports", []) for name, of, _ in containers(FULL) if name.startswith(f"demo-retry-{component}/")]
    assert {port for _, ports in found for port in ports} == {port["containerPort"] for ports in served for port in ports}
    nobody = [f"networkPolicy.{name}=null" for name in ("metricsFrom", "apiFrom", "consoleFrom")]
    assert list_opened_ports(component, "--set", ",".join(nobody))["ingress"] == []


@pytest.mark.parametrize("component", ASKED)
def test_pods_reach_what_they_need_where_it_is_named(component: str) -> None:
    dns, *rest = list_opened_ports(component)["egress"]
    assert (dns[1], "kube-system" in str(dns[0])) == ([53], True)
    calls = [each for each in rest if "169.254.0.0/16" in each[0][0]["ipBlock"].get("except", [])]
    assert [ports for _, ports in calls] == ([[443]] if component == "worker" else [])
    registry = [(REGISTRY, [443, 8081])] if component in ("worker", "console") else []
    login = [(LOGIN, [443])] if component == "console" else []
    assert [each for each in rest if each not in calls] == [(KAFKA, [9092, 9093]), *registry, *login, (EXTRA, [8443])]


def test_workers_call_nobody_where_no_timers_are_made() -> None:
    without = list_opened_ports("worker", "--set", "api.enabled=false")["egress"]
    (calls,) = [ports for peers, ports in list_opened_ports("worker")["egress"] if (peers, ports) not in without]
    assert calls == [443]
    policy = one("NetworkPolicy", "demo-retry-worker", MINIMAL)["spec"]
    assert (policy["ingress"], [_tcp(rule) for rule in policy["egress"]]) == ([], [[53], [9092, 9093]])
