"""Signatures: the specification's vector, rotation, and secrets that are none."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from retry.errors import SettingsInvalid
from retry.http_client.client import secret_of, secrets_of, sign_body

SECRET, ID = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek"
OTHER = "whsec_" + base64.b64encode(bytes(range(32))).decode()
BODY = b'{"test": 2432232314}'


def test_the_vector_of_the_specification() -> None:
    assert sign_body([secret_of(SECRET)], ID, 1614265330, BODY) == {
        "webhook-id": ID,
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_while_secrets_rotate_there_is_a_signature_by_each() -> None:
    told = sign_body(secrets_of(f"# newest first\n{OTHER}\n\n{SECRET}\n"), ID, 1614265330, BODY)["webhook-signature"].split(" ")
    by_hand = hmac.new(bytes(range(32)), b"%s.1614265330.%s" % (ID.encode(), BODY), hashlib.sha256).digest()
    assert told == ["v1," + base64.b64encode(by_hand).decode(), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="]


def test_without_secrets_nothing_is_signed() -> None:
    assert sign_body([], ID, 1, b"") == {"webhook-id": ID, "webhook-timestamp": "1"}


NONE = ["", "whsec_", "whsec_c2hvcnQ=", "whsec_" + "A" * 200, SECRET.removeprefix("whsec_"), "whsec_$$$$"]


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_secret_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(SettingsInvalid) as refused:
        secret_of(text)
    assert len(text) < 10 or text not in str(refused.value)
