"""Signatures by the Standard Webhooks specification, version 1: https://www.standardwebhooks.com.

>>> secret = secret_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
>>> headers = sign_body([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
>>> headers["webhook-signature"]
'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from retry.dead_letters.retry_headers import WEBHOOK_ID
from retry.errors import SettingsInvalid

_PREFIX = "whsec_"
_BYTES_MIN, _BYTES_MAX = 24, 64


def secret_of(text: str) -> bytes:
    """The key in a secret as it is handed out: `whsec_` and 24 to 64 bytes in base64.

    Raises:
      SettingsInvalid: it is none; the message does not repeat it.
    """
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not text.startswith(_PREFIX) or not _BYTES_MIN <= len(key) <= _BYTES_MAX:
        what = f"a line is not {_PREFIX} with {_BYTES_MIN} to {_BYTES_MAX} bytes in base64"
        raise SettingsInvalid("RETRY_WEBHOOK_SECRETS", what)
    return key


def secrets_of(text: str) -> list[bytes]:
    """The keys of a file: one secret a line, empty lines and lines that begin with # left out.

    Raises:
      SettingsInvalid: as `secret_of`.
    """
    lines = (line.strip() for line in text.splitlines())
    return [secret_of(line) for line in lines if line and not line.startswith("#")]


def sign_body(secrets: Sequence[bytes], webhook_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """The headers of one attempt: a signature by each secret, so that a receiver may know the old one or the new one.

    Without secrets there is no `webhook-signature`.
    """
    headers = {WEBHOOK_ID: webhook_id, "webhook-timestamp": str(timestamp_s)}
    content = f"{webhook_id}.{timestamp_s}.".encode() + body
    signatures = [base64.b64encode(hmac.digest(secret, content, hashlib.sha256)).decode() for secret in secrets]
    if signatures:
        headers["webhook-signature"] = " ".join(f"v1,{signature}" for signature in signatures)
    return headers
