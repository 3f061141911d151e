"""Signatures: the specification's vector, rotation, keys of each team, keys that receivers cannot sign with, and what is none."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from click.testing import CliRunner
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from retry.__main__ import main
from retry.errors import SettingsInvalid
from retry.http_client.signatures import SigningKeys, make_key, read_key, sign_body

SECRET, ID = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek"
OTHER = "whsec_" + base64.b64encode(bytes(range(32))).decode()
# As another implementation of the specification has them in its tests.
PRIVATE = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
PUBLIC = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
BODY = b'{"test": 2432232314}'
BY_SECRET = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def signatures(file: str, name: str, body: bytes = BODY) -> list[str]:
    """How a call of a team is signed with the keys of a file."""
    return sign_body(SigningKeys(file).find_keys(name), ID, 1614265330, body).get("webhook-signature", "").split(" ")


def verifies(public: str, signature: str, body: bytes = BODY) -> bool:
    """Whether a receiver that has nothing but the public key takes a signature for one of the service."""
    scheme, _, encoded = signature.partition(",")
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public.removeprefix("whpk_")))
    try:
        key.verify(base64.b64decode(encoded), b"%s.1614265330.%s" % (ID.encode(), body))
    except InvalidSignature:
        return False
    return scheme == "v1a"


def test_the_vector_of_the_specification() -> None:
    assert sign_body([read_key(SECRET)], ID, 1614265330, BODY) == {
        "webhook-id": ID,
        "webhook-timestamp": "1614265330",
        "webhook-signature": BY_SECRET,
    }


def test_while_secrets_rotate_there_is_a_signature_by_each() -> None:
    by_hand = hmac.new(bytes(range(32)), b"%s.1614265330.%s" % (ID.encode(), BODY), hashlib.sha256).digest()
    told = signatures(f"# newest first\n{OTHER}\n\n{SECRET}\n", "any")
    assert told == ["v1," + base64.b64encode(by_hand).decode(), BY_SECRET]


def test_without_secrets_nothing_is_signed() -> None:
    assert sign_body([], ID, 1, b"") == {"webhook-id": ID, "webhook-timestamp": "1"}


def test_the_key_of_one_team_signs_no_call_of_another() -> None:
    file = f"payments {SECRET}\norders {OTHER}\n@chat {OTHER}\n"
    payments, orders, chat = (signatures(file, name) for name in ("payments", "orders", "@chat"))
    assert payments == [BY_SECRET]
    assert orders == chat != payments
    assert signatures(file, "search") == [""]
    # A key of nobody is for who has none: it does not sign beside a team's own.
    assert signatures(f"{file}{PRIVATE}\n", "payments") == payments
    assert verifies(PUBLIC, *signatures(f"{file}{PRIVATE}\n", "search"))


def test_a_receiver_verifies_with_the_public_key_alone_and_knows_what_was_changed() -> None:
    (signed,) = signatures(f"payments {PRIVATE}", "payments")
    assert verifies(PUBLIC, signed)
    assert not verifies(PUBLIC, signed, b"other")
    public, private = make_key(asymmetric=True)
    new, old = signatures(f"payments {private}\npayments {PRIVATE}", "payments")
    assert [verifies(public, new), verifies(public, old), verifies(PUBLIC, old)] == [True, False, True]
    seed = base64.b64encode(base64.b64decode(PRIVATE.removeprefix("whsk_"))[:32]).decode()
    assert signatures(f"payments whsk_{seed}", "payments") == [signed]


NONE = [
    "", "whsec_", "whsec_c2hvcnQ=", "whsec_" + "A" * 200, SECRET.removeprefix("whsec_"), "whsec_$$$$", "whsk_", "whsk_c2hvcnQ=",
    PRIVATE.replace("6Xb/", "7Xb/"), PRIVATE[:-6] + "AAAA==", PUBLIC,
]  # fmt: skip


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_secret_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(SettingsInvalid) as refused:
        read_key(text)
    assert len(text) < 10 or text not in str(refused.value)


@pytest.mark.parametrize("line", [f"a b {SECRET}", f"pay/ments {SECRET}", f"@ {SECRET}", "payments", f"{SECRET} payments"])
def test_a_line_that_is_none_is_named_and_not_repeated(line: str) -> None:
    with pytest.raises(SettingsInvalid, match="RETRY_WEBHOOK_SECRETS") as refused:
        SigningKeys(line)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("options", [[], ["--asymmetric"]])
def test_the_command_makes_a_line_and_what_receivers_verify_with(options: list[str]) -> None:
    made = CliRunner().invoke(main, ["api", "secret", "payments", *options])
    assert made.exit_code == 0
    (signed,) = signatures(made.stdout, "payments")
    told = made.stderr.strip()
    assert verifies(told, signed) if options else signatures(told, "payments") == [signed]
    refused = CliRunner().invoke(main, ["api", "secret", "pay ments"])
    assert (refused.exit_code, "is no name" in refused.output) == (2, True)
