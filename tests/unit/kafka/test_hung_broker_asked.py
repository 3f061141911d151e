"""Who is asked which transaction wrote a record may hang: then nobody is asked again for each record."""

from __future__ import annotations

import socket

import pytest

from retry.kafka import record_writers
from retry.kafka.record_writers import RecordWriters


def test_a_broker_that_hangs_is_not_asked_for_each_record(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(record_writers, "_ASK_S", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=20) as hung:
        host, port = hung.getsockname()
        writers = RecordWriters({"bootstrap.servers": f"{host}:{port}"})
        assert writers.find("topic", 0, 0) is None
        hung.accept()[0].close()
        hung.setblocking(False)
        assert writers.find("topic", 0, 1) is None
        with pytest.raises(BlockingIOError):
            hung.accept()
    assert ["TimeoutError" in record.message for record in caplog.records] == [True]
