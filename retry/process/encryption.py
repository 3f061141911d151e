"""Whether payloads may be sealed: with the keys of the settings, and once every worker reads what is sealed."""

from __future__ import annotations

from retry import format_versions
from retry.delay_queue import envelope_codec
from retry.errors import SettingsInvalid
from retry.kafka import authorization, consumer_groups, topics
from retry.kafka.interface import AdminClient
from retry.sealing.key_file import SETTING
from retry.settings import Settings

_OLDER = (
    "set, but {number} of {count} workers are of a version that reads nothing that is sealed, and would stop: {ids}. Upgrade all "
    "workers first, without this setting; one that was stopped is forgotten when its session times out"
)


def codec(settings: Settings, admin: AdminClient, instance: str = "") -> envelope_codec.EnvelopeCodec:
    """Make the codec of envelopes, sealed where the settings name keys; for a worker, `instance` is its name of before, maybe.

    Raises SettingsInvalid: the file cannot be used, or a worker is of an earlier version; RightMissing: nobody may know.
    """
    codec = envelope_codec.make_codec(settings)
    if codec is envelope_codec.PLAIN:
        return codec
    group = topics.build_topic_names(settings.app_id).table_group
    ids = consumer_groups.list_members(admin, group)
    if ids is None:
        # A worker is to be in that group, which is a right to read it, and to describe it with that.
        operation = authorization.READ if instance else authorization.DESCRIBE
        raise authorization.lacking(authorization.Right(authorization.GROUP, group, operation))
    others = [each for each in ids if each.partition(".reads.")[0] != instance]
    if older := sorted(each for each in others if not format_versions.reads_format(each, format_versions.SEALED_ENVELOPE)):
        raise SettingsInvalid(SETTING, _OLDER.format(number=len(older), count=len(ids), ids=", ".join(dict.fromkeys(older))))
    return codec
