"""How a process of the service begins: tuned, with a data directory of its own, saying aloud what lets somebody else in.

Payloads are sealed where the settings name keys, and once every worker reads what is sealed. Spans are sent where the settings
ask for them.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import fcntl
import gc
import hashlib
import logging
import os
import platform
import resource
import socket
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from retry import format_versions
from retry.delay_queue import envelope_codec
from retry.errors import DataDirInUse, DataDirUnusable, SettingsInvalid
from retry.kafka import authorization, consumer_groups, topics
from retry.kafka.interface import AdminClient
from retry.sealing.key_file import SETTING
from retry.settings import Settings

if TYPE_CHECKING:
    from retry.telemetry.tracing import Traces

# What a process asks of its interpreter, C library and kernel before it begins: few heaps, all files, a word when it crashes.
#
# glibc gives every thread a heap of its own, up to eight per core, and each keeps what its busiest moment needed. A worker has
# some fifty threads of librdkafka and RocksDB that pass large buffers on to each other: with one arena its memory halved (694
# to 337 MB at 160,000 waiting entries), and intake no longer gave pages back only to take them again. With two, threads wait
# less for each other: intake is a fifth faster, for 20 MB.
#
# A shard's two producers have some sixteen file descriptors, so the 64 shards of one worker need more than the 1,024 that many
# systems give at first. The kernel lets a process raise that by itself, up to a limit that is usually far higher.

# Numbers of <malloc.h>.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8

_FILES = 65_536


def tune_process() -> None:
    """Call once, before the first thread is started. The heaps are those of glibc alone."""
    # Librdkafka or RocksDB may end the process with a signal: where each thread was then is all that is left to look at.
    faulthandler.enable(sys.__stderr__ or sys.stderr)
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _FILES if most == resource.RLIM_INFINITY else min(_FILES, most)
    if allowed != resource.RLIM_INFINITY and allowed < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    if platform.libc_ver()[0] == "glibc":
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 2)
        mallopt(_M_TRIM_THRESHOLD, 16 << 20)
        mallopt(_M_TOP_PAD, 4 << 20)
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)


def calm_collector() -> None:
    """Let the garbage collector look at batches, not at each 700 tuples of one; nothing of theirs is cyclic."""
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)


# A worker's data directory belongs to one process, and gives that process its name.

# Locks live as long as the process: a closed file would give its lock back.
_HELD: list[object] = []


def claim_directory(data_dir: Path) -> None:
    """Lock the data directory for this process; raises DataDirInUse, or DataDirUnusable where it cannot be written to."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (data_dir / "lock").open("a+")
    except OSError as error:
        raise DataDirUnusable(str(data_dir), error.strerror or str(error)) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        raise DataDirInUse(str(data_dir), file.read().strip() or "unknown") from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    _HELD.append(file)


def find_instance(settings: Settings) -> str:
    """Find the stable name of the process that runs on this data directory, even after the directory was lost."""
    place = f"{socket.gethostname()}:{settings.data_dir.absolute()}"
    return settings.instance or hashlib.sha256(place.encode()).hexdigest()[:16]


# What the settings allow that lets somebody else in: said aloud at every start, since it is meant for a quiet hour and stays.

log = logging.getLogger(__name__)

_OFF = ("false", "f", "0")
# Each with whether it is secret: of tokens the file has hashes, which anybody may read.
_FILES_OF_SETTINGS = {
    "api_tokens": False, "webhook_secrets": True, "encryption_keys": True, "api_tls_key": True, "scheduler_tls_key": True,
    "console_tokens": False, "console_oidc_roles": False, "console_oidc_client_secret": True, "console_tls_key": True,
}  # fmt: skip
# Of the clients of Kafka and of the schema registry.
_SECRET_PROPERTIES = ("ssl.key.location", "ssl.keystore.location", "sasl.kerberos.keytab")


def warn_of_insecure(settings: Settings) -> None:
    for line in (*_certificates(settings.kafka), *_files(settings)):
        log.warning("%s", line)


def _certificates(kafka: Mapping[str, str]) -> Iterator[str]:
    if kafka.get("enable.ssl.certificate.verification", "").lower() in _OFF:
        yield (
            "RETRY_KAFKA_ENABLE_SSL_CERTIFICATE_VERIFICATION is off: whoever answers is taken for a broker; "
            "name the authority in RETRY_KAFKA_SSL_CA_LOCATION and leave this out"
        )
    if kafka.get("ssl.endpoint.identification.algorithm", "").lower() == "none":
        yield (
            "RETRY_KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM is none: a certificate of any host passes for a broker's; "
            "have the brokers' names in their certificates and leave this out"
        )


def _files(settings: Settings) -> Iterator[str]:
    files = {f"RETRY_{name.upper()}": (getattr(settings, name), is_secret) for name, is_secret in _FILES_OF_SETTINGS.items()}
    for prefix, properties in (("RETRY_KAFKA_", settings.kafka), ("RETRY_REGISTRY_", settings.registry)):
        for name in _SECRET_PROPERTIES:
            place = properties.get(name)
            files[prefix + name.upper().replace(".", "_")] = (Path(place) if place else None, True)
    for variable, (path, is_secret) in files.items():
        if path is not None and (open_to_all := find_open_file(variable, path, is_secret=is_secret)):
            yield open_to_all


def find_open_file(variable: str, path: Path, *, is_secret: bool) -> str:
    """Say which file every user of this machine may change, or read although it is a secret; empty where nobody may."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""  # Whoever reads it says so.
    if mode & stat.S_IWOTH:
        return f"{variable}: every user of this machine may change {path}; chmod o-rwx {path}"
    is_readable = is_secret and mode & stat.S_IROTH
    return f"{variable}: every user of this machine may read {path}; chmod o-rwx {path}" if is_readable else ""


_OLDER = (
    "set, but {number} of {count} workers are of a version that reads nothing that is sealed, and would stop: {ids}. Upgrade all "
    "workers first, without this setting; one that was stopped is forgotten when its session times out"
)


def make_codec(settings: Settings, admin: AdminClient, instance: str = "") -> envelope_codec.EnvelopeCodec:
    """Make the codec that writes and reads envelopes, the stored form of entries; it seals them where the settings name keys.

    The name of a worker, `instance`, may be known from before it was upgraded; it is empty for who is none. Raises
    SettingsInvalid where the file cannot be used or a worker is of an earlier version, RightMissing where this user may not know.
    """
    codec = envelope_codec.make_codec(settings)
    if codec is envelope_codec.PLAIN:
        return codec
    group = topics.build_topic_names(settings.app_id).table_group
    ids = consumer_groups.list_members(admin, group)
    if ids is None:
        # A worker is to be in that group, which is a right to read it, and to describe it with that.
        operation = authorization.READ if instance else authorization.DESCRIBE
        raise authorization.build_right_missing(authorization.Right(authorization.GROUP, group, operation))
    others = [each for each in ids if each.partition(".reads.")[0] != instance]
    if older := sorted(each for each in others if not format_versions.reads_format(each, format_versions.SEALED_ENVELOPE)):
        raise SettingsInvalid(SETTING, _OLDER.format(number=len(older), count=len(ids), ids=", ".join(dict.fromkeys(older))))
    return codec


def open_traces(settings: Settings) -> Traces | None:
    """Open what sends spans until the process ends; None where there are none. Raises SettingsInvalid without the library."""
    if not settings.traces:
        return None
    try:
        # Whoever sends none needs no library.
        from retry.telemetry.tracing import Traces
    except ImportError as error:
        from retry.distribution import describe_extra

        raise SettingsInvalid("RETRY_TRACES", f"{error}; {describe_extra('otel')}, or set it to 0") from None
    traces = Traces(settings.app_id, group=topics.build_topic_names(settings.app_id).intake_group)
    atexit.register(traces.close)
    return traces
