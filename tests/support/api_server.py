"""A real Kubernetes API server on loopback with an etcd of its own, which `make check-release` builds; nothing runs its pods."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from retry.kafka.local_broker import free_port
from tests.support.chart import ROOT
from tests.support.process import await_that
from tests.support.tools import missing, tool

FOLDER = ROOT / "build" / "apiserver"
_TOKEN = "of-the-test"
_READY_S = 300.0
_OK = (http.client.OK, http.client.CREATED)

Object = dict[str, Any]


class ApiServer:
    """An API server that runs for the time of a `with` block.

    Args:
      folder: for certificates, logs, etcd's data and the kubeconfig.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._stack = folder, ExitStack()
        self._port, client, peer = free_port(), free_port(), free_port()
        self._etcd, self._peer = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        self.kubeconfig = folder / "kubeconfig"

    def __enter__(self) -> ApiServer:
        folder = self._folder
        (folder / "tokens.csv").write_text(f"{_TOKEN},admin,1,system:masters\n")
        key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        pem = key.private_bytes(*(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8), serialization.NoEncryption())
        (folder / "accounts.key").write_bytes(pem)
        self._start("server", "--name=one", f"--data-dir={folder / 'etcd'}", f"--initial-cluster=one={self._peer}",
                    f"--listen-client-urls={self._etcd}", f"--advertise-client-urls={self._etcd}",
                    f"--listen-peer-urls={self._peer}", f"--initial-advertise-peer-urls={self._peer}")  # fmt: skip
        server = self._start(
            "kube-apiserver", f"--etcd-servers={self._etcd}", "--bind-address=127.0.0.1", f"--secure-port={self._port}",
            f"--cert-dir={folder / 'certificates'}", f"--token-auth-file={folder / 'tokens.csv'}", "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'accounts.key'}", "--endpoint-reconciler-type=none",
            f"--service-account-signing-key-file={folder / 'accounts.key'}",
            # No controller is there that would let a claim go which no pod uses.
            "--disable-admission-plugins=StorageObjectInUseProtection",
        )  # fmt: skip
        await_that("the API server is ready", lambda: server.poll() is not None or self._ready(), _READY_S)
        assert server.poll() is None, (folder / "kube-apiserver.log").read_text()[-3_000:]
        self.kubeconfig.write_text(json.dumps(self._told()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        program = FOLDER / name
        if not program.exists():
            missing(f"no {program}; `make check-release` builds it where Go is")
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen([program, *arguments], cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def _told(self) -> Object:
        cluster = {"server": f"https://127.0.0.1:{self._port}", "certificate-authority": str(self._certificate())}
        return {
            "apiVersion": "v1", "kind": "Config", "current-context": "one",
            "clusters": [{"name": "one", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": _TOKEN}}],
            "contexts": [{"name": "one", "context": {"cluster": "one", "user": "admin"}}],
        }  # fmt: skip

    def _certificate(self) -> Path:
        return self._folder / "certificates" / "apiserver.crt"

    def _ready(self) -> bool:
        try:
            return self.ask("GET", "/readyz")[0] == http.client.OK
        except (OSError, http.client.HTTPException):
            return False

    def ask(self, method: str, path: str, body: Object | None = None, **query: str) -> tuple[int, Any]:
        """Status and body of one answer."""
        trusted = ssl.create_default_context(cafile=str(self._certificate()))
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=60, context=trusted)
        headers = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": "application/json"}
        connection.request(method, f"{path}?{urlencode(query)}" if query else path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        told = answer.read()
        connection.close()
        return answer.status, json.loads(told) if told.startswith(b"{") else told.decode()

    def make(self, path: str, body: Object, **query: str) -> Object:
        """Make an object; fails with what the server says of it."""
        status, told = self.ask("POST", path, body, **query)
        assert status in _OK, told
        return told  # type: ignore[no-any-return]

    def get(self, path: str) -> Object:
        """An object that is there."""
        status, told = self.ask("GET", path)
        assert status == http.client.OK, told
        return told  # type: ignore[no-any-return]

    def helm(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """helm against this server, to its end."""
        command = [tool("helm"), *map(str, arguments), "--kubeconfig", str(self.kubeconfig), "--namespace", "retry"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
