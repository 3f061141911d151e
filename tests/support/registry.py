"""A schema registry on loopback: a real HTTP or HTTPS server that answers the two paths which readers ask for."""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from retry.clock import pause


class RegistryServer:
    """Keeps schemas by number and by subject and version; 404 for all others.

    Args:
      tls: how it speaks TLS; it does not where this is left out.

    Attributes:
      asked: the paths, in their order.
      askers: who asked, by the common names of their certificates.
      broken: answers everything with this status where it is not 0.
      slow_s: how long each answer takes.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.versions: dict[tuple[str, int], dict[str, Any]] = {}
        self.asked: list[str] = []
        self.askers: list[str] = []
        self.broken = 0
        self.slow_s = 0.0
        ours = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if isinstance(self.connection, ssl.SSLSocket):
                    ours.askers.append(_common_name(self.connection))
                status, body = ours.answer(self.path)
                payload = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls:
            # Each connection is its own thread's to greet: one that is refused must not hold up the rest.
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def add(
        self, number: int, text: str, subject: str = "", kind: str = "AVRO", references: tuple[tuple[str, str, int], ...] = (),
        serialized: str = "",
    ) -> None:  # fmt: skip
        """Keep a schema; references are names, subjects and versions, `serialized` is what is told of it in that form."""
        schema: dict[str, Any] = {"schema": text}
        if serialized:
            schema["serialized"] = serialized
        if kind != "AVRO":
            schema["schemaType"] = kind
        if references:
            schema["references"] = [{"name": n, "subject": s, "version": v} for n, s, v in references]
        self.schemas[number] = schema
        if subject:
            self.versions[subject, 1] = {"subject": subject, "version": 1, "id": number, **schema}

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of an answer."""
        self.asked.append(path)
        if self.slow_s:
            pause(self.slow_s)
        status, body = self._find(path.partition("?")[0].strip("/").split("/"))
        told = dict(body)
        if (serialized := told.pop("serialized", "")) and "format=serialized" in path:
            told["schema"] = serialized
        return status, told

    def _find(self, parts: list[str]) -> tuple[int, dict[str, Any]]:
        if self.broken:
            return self.broken, {"error_code": self.broken, "message": "broken"}
        if parts[:2] == ["schemas", "ids"] and int(parts[2]) in self.schemas:
            return 200, self.schemas[int(parts[2])]
        if parts[0] == "subjects" and parts[2] == "versions" and (parts[1], int(parts[3])) in self.versions:
            return 200, self.versions[parts[1], int(parts[3])]
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def close(self) -> None:
        """Stop answering, and let go of the port."""
        self._server.shutdown()
        self._server.server_close()


def _common_name(connection: ssl.SSLSocket) -> str:
    certificate = connection.getpeercert() or {}
    return str(dict(pair for part in certificate["subject"] for pair in part)["commonName"])


def confluent(number: int, datum: bytes) -> bytes:
    """A datum in the wire format."""
    return b"\0" + number.to_bytes(4, "big") + datum
