"""A broker as a bank runs it: TLS, SCRAM, tokens or certificates, and nothing is allowed to anybody that was not granted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from retry.kafka.local_broker import HOST, LocalBroker
from tests.support.oidc_provider import OidcProvider
from tests.support.ports import free_port
from tests.support.process import await_that
from tests.support.reading import admin
from tests.support.shared_broker import PATIENT

ADMIN = "admin"
_ASK_S = 60.0
_SCRAM_ROUNDS = 4_096
_LIFE = timedelta(days=30)
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
# The first listener is the broker's own, and the tests': whoever comes that way may do everything.
_PROPERTIES = """\
listeners={outside},CONTROLLER://{host}:{controller}
advertised.listeners={outside}
listener.security.protocol.map=INNER:PLAINTEXT,CLIENTS:SASL_SSL,MUTUAL:SSL,TOKENS:SASL_SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=INNER
controller.quorum.voters=1@{host}:{controller}
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.tokens.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.tokens.oauthbearer.sasl.jaas.config={oauth}.OAuthBearerLoginModule required;
listener.name.tokens.oauthbearer.sasl.server.callback.handler.class={oauth}.OAuthBearerValidatorCallbackHandler
listener.name.tokens.oauthbearer.sasl.oauthbearer.jwks.endpoint.url={issuer}/keys
listener.name.tokens.oauthbearer.sasl.oauthbearer.expected.audience=kafka
listener.name.tokens.oauthbearer.sasl.oauthbearer.expected.issuer={issuer}
listener.name.tokens.oauthbearer.connections.max.reauth.ms=600000
listener.name.clients.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.mutual.ssl.client.auth=required
ssl.principal.mapping.rules=RULE:^CN=(.*)$/$1/,DEFAULT
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
ssl.truststore.type=PEM
ssl.truststore.location={authority}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=false
super.users=User:ANONYMOUS;User:{admin}
"""


class Right(NamedTuple):
    """One line of an access control list: `Right("User:x", "topic", "orders.", "read", prefixed=True)`."""

    principal: str
    resource: str
    name: str
    operation: str
    prefixed: bool = False

    def binding(self) -> AclBinding:
        """Return the right as the admin client grants it."""
        return AclBinding(*self._described(), AclPermissionType.ALLOW)

    def filter(self) -> AclBindingFilter:
        """Return the right as the admin client looks for it, to take it away."""
        return AclBindingFilter(*self._described(), AclPermissionType.ALLOW)

    def _described(self) -> tuple[ResourceType, str, ResourcePatternType, str, str, AclOperation]:
        # librdkafka has no word of its own for a cluster: it is the broker.
        kind = {"cluster": "BROKER", "transactional-id": "TRANSACTIONAL_ID"}.get(self.resource, self.resource.upper())
        pattern = ResourcePatternType.PREFIXED if self.prefixed else ResourcePatternType.LITERAL
        operation = AclOperation[self.operation.replace("-", "_").upper()]
        return ResourceType[kind], self.name, pattern, self.principal, "*", operation


class SecuredBroker:
    """One broker with a listener for each way in; granting and refusing takes effect before these calls return.

    Attributes:
      inner: the broker's process; its own bootstrap servers are a way past all locks, for what tests do themselves.
      bootstrap_servers: SASL_SSL with SCRAM-SHA-512, where the service belongs.
      token_servers: SASL_SSL with OAUTHBEARER; whoever has a token of `provider` is its `sub`, until the token ends.
      mutual_servers: SSL, where a client's certificate says who it is: `CN=x` is `User:x`.
      authority: file of the certificate of who signed everybody's.
      admin: a client that may do everything.
    """

    def __init__(self, folder: Path, overrides: Iterable[str] = (), heap_mb: int = 512) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._certificates = Certificates(folder)
        self.authority = self._certificates.authority
        ports = {name: free_port() for name in ("inner", "clients", "mutual", "tokens", "controller")}
        self.provider = OidcProvider()
        keystore = folder / "broker.pem"
        keystore.write_bytes(b"".join(self._certificates.sign("localhost")))
        properties = _PROPERTIES.format(
            host=HOST, keystore=keystore, authority=self.authority, admin=ADMIN, oauth=_OAUTH, issuer=self.provider.issuer,
            outside=",".join(f"{name.upper()}://{HOST}:{port}" for name, port in ports.items() if name != "controller"),
            controller=ports["controller"],
        )  # fmt: skip
        overrides = [*properties.splitlines(), *PATIENT, *overrides]
        # Brokers ask nobody for keys of tokens whom they were not allowed to ask.
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.provider.issuer}/keys"
        self.inner = LocalBroker(folder / "broker", ports["inner"], heap_mb, overrides, jvm=[allowed])
        self.bootstrap_servers, self.mutual_servers, self.token_servers = (
            f"{HOST}:{ports[name]}" for name in ("clients", "mutual", "tokens")
        )

    def add_user(self, name: str, password: str) -> None:
        """Make a user, who may nothing yet; the user `ADMIN` may everything."""
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _SCRAM_ROUNDS)
        wanted = UserScramCredentialUpsertion(name, credential, password.encode())
        self.admin.alter_user_scram_credentials([wanted], request_timeout=_ASK_S)[name].result(_ASK_S)

    def certificate(self, name: str, passphrase: str = "", ends: timedelta | None = None) -> tuple[Path, Path]:
        """Files of a certificate of `User:name` and of its key, which may be encrypted; for `mutual_servers`."""
        return self._certificates.files(name, passphrase, ends)

    def mutual_environ(self, name: str, passphrase: str) -> dict[str, str]:
        """The settings of the service for `User:name`, who shows a certificate, a new one each time."""
        certificate, key = self.certificate(name, passphrase)
        properties = {
            "security.protocol": "SSL", "ssl.ca.location": str(self.authority),
            "ssl.certificate.location": str(certificate), "ssl.key.location": str(key), "ssl.key.password": passphrase,
        }  # fmt: skip
        return {"RETRY_BOOTSTRAP_SERVERS": self.mutual_servers, **as_environ(properties)}

    def token_environ(self, name: str, secret: str) -> dict[str, str]:
        """The settings of the service for `User:name`, whom the provider gives tokens for a secret."""
        self.provider.programs[name] = secret
        properties = {
            "security.protocol": "SASL_SSL", "ssl.ca.location": str(self.authority), "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": name, "sasl.oauthbearer.client.secret": secret,
            "sasl.oauthbearer.token.endpoint.url": f"{self.provider.issuer}/token",
        }  # fmt: skip
        return {"RETRY_BOOTSTRAP_SERVERS": self.token_servers, **as_environ(properties)}

    def client(self, user: str, password: str) -> dict[str, str]:
        """librdkafka's properties of a client of `bootstrap_servers`."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": str(self.authority),
        }

    def environ(self, user: str, password: str) -> dict[str, str]:
        """The settings of the service for a user."""
        return {"RETRY_BOOTSTRAP_SERVERS": self.bootstrap_servers, **as_environ(self.client(user, password))}

    def grant(self, rights: Iterable[Right]) -> None:
        """Grant these rights to their principals."""
        for done in self.admin.create_acls([right.binding() for right in rights], request_timeout=_ASK_S).values():
            done.result(_ASK_S)
        self._settle()

    def withdraw(self, rights: Iterable[Right]) -> None:
        """Allow no longer; fails for what was not allowed."""
        wanted = {right.filter(): right for right in rights}
        for which, done in self.admin.delete_acls(list(wanted), request_timeout=_ASK_S).items():
            assert done.result(_ASK_S), f"never granted: {wanted[which]}"
        self._settle()

    def _settle(self) -> None:
        """Return when the broker judges by what the controller was told: the metadata log is read in its order."""
        marker = Right("User:nobody", "topic", "marker", "read")
        self.admin.create_acls([marker.binding()], request_timeout=_ASK_S)[marker.binding()].result(_ASK_S)
        await_that("rights are known", lambda: self._has(marker))
        self.admin.delete_acls([marker.filter()], request_timeout=_ASK_S)[marker.filter()].result(_ASK_S)
        await_that("rights are known", lambda: not self._has(marker))

    def _has(self, right: Right) -> bool:
        return bool(self.admin.describe_acls(right.filter(), request_timeout=_ASK_S).result(_ASK_S))

    def __enter__(self) -> SecuredBroker:
        self.inner.start()
        self.admin = admin(self.inner.bootstrap_servers)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.inner.stop()
        self.provider.close()


def as_environ(properties: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's properties as the service's settings."""
    return {f"RETRY_KAFKA_{name.upper().replace('.', '_')}": value for name, value in properties.items()}


_SIGNS = x509.KeyUsage(
    digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
    key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
)  # fmt: skip


class Certificates:
    """An authority of one test run, and what it signs."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a test run")])
        authority = x509.BasicConstraints(ca=True, path_length=None)
        builder = self._begun(self._name, self._key.public_key()).add_extension(authority, critical=True)
        own = builder.add_extension(_SIGNS, critical=True).sign(self._key, hashes.SHA256())
        self.authority = folder / "authority.pem"
        self.authority.write_bytes(own.public_bytes(Encoding.PEM))

    def sign(
        self, name: str, passphrase: str = "", *, begins: timedelta = -_LIFE, ends: timedelta = _LIFE
    ) -> tuple[bytes, bytes]:
        """Key and certificate, as PEM, of `CN=name` at this machine, valid from and until so long from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._begun(subject, key.public_key(), begins, ends)
        here = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(HOST)), x509.DNSName("localhost")])
        signed = builder.add_extension(here, critical=False).sign(self._key, hashes.SHA256())
        locked = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked), signed.public_bytes(Encoding.PEM)

    def files(self, name: str, passphrase: str = "", ends: timedelta | None = None) -> tuple[Path, Path]:
        """Files of a certificate, valid for so long from now, and of its key."""
        certificate, key = self._folder / f"{name}.crt.pem", self._folder / f"{name}.key.pem"
        key_pem, certificate_pem = self.sign(name, passphrase, ends=ends or _LIFE)
        certificate.write_bytes(certificate_pem)
        key.write_bytes(key_pem)
        key.chmod(0o600)
        return certificate, key

    def _begun(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, begins: timedelta = -_LIFE, ends: timedelta = _LIFE
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        begun = x509.CertificateBuilder().subject_name(name).issuer_name(self._name).public_key(key)
        # Python 3.13 trusts no certificate without these.
        begun = begun.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        begun = begun.add_extension(signer, critical=False)
        return begun.serial_number(x509.random_serial_number()).not_valid_before(now + begins).not_valid_after(now + ends)
