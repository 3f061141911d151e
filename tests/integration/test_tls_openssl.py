"""What OpenSSL's own client says of the HTTP server with a certificate."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.integration.test_http_tls import ANSWER_S, Pair, pair, serving

pytestmark = [pytest.mark.check, pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl command here")]

__all__ = ["pair"]


@pytest.mark.parametrize(("options", "said", "expected"), [
    ([], b"Q\n", "Verify return code: 0 (ok)"),
    (["-tls1_2"], b"Q\n", "Verify return code: 0 (ok)"),
    # Another handshake on the same connection, which costs a server far more than a client.
    (["-tls1_2"], b"R\n", "no renegotiation"),
    (["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], b"Q\n", "no peer certificate available"),
], ids=["newest", "TLS 1.2", "renegotiation", "TLS 1.1"])  # fmt: skip
def test_openssl_trusts_it_and_may_neither_renegotiate_nor_speak_old_protocols(
    pair: Pair, options: list[str], said: bytes, expected: str
) -> None:
    with serving(pair) as (_, plain, _):
        at = f"127.0.0.1:{plain().getpeername()[1]}"
        trusting = ["-CAfile", str(pair.certificates.authority), "-verify_ip", "127.0.0.1"]
        done = subprocess.run(
            ["openssl", "s_client", "-connect", at, *trusting, *options],
            input=said, capture_output=True, timeout=ANSWER_S, check=False,
        )  # fmt: skip
        assert expected in (done.stdout + done.stderr).decode(errors="replace")
