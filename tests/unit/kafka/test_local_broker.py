"""What the local broker is given to start with."""

from __future__ import annotations

import base64
import socket
from pathlib import Path

import pytest

from retry.errors import BrokerNotStarted
from retry.kafka.local_broker import HOST, LocalBroker, make_cluster_id
from tests.support.cluster import java_hash


def test_a_cluster_id_is_sixteen_bytes_and_never_looks_like_an_option() -> None:
    ids = [make_cluster_id() for _ in range(2_000)]
    assert len(set(ids)) == len(ids)
    assert all(len(base64.urlsafe_b64decode(each + "==")) == 16 for each in ids)
    assert not any("-" in each for each in ids)


def test_coordinators_are_found_by_the_hash_that_java_has() -> None:
    assert java_hash("hello") == 99_162_322
    # `hashCode` gives a negative number, of which Kafka takes the absolute value and does not mask the sign.
    assert java_hash("aaaaaa") == 1_425_372_064
    # The least number there is has no absolute value; Kafka takes 0.
    assert java_hash("polygenelubricants") == 0


def test_a_port_in_use_is_told_and_nobody_elses_server_is_taken_for_the_broker(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(BrokerNotStarted, match=f"listen on 127.0.0.1:{port}: Address already in use; end what listens there"):
            LocalBroker(tmp_path, port).start()
