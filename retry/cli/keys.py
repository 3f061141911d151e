"""`retry keys`: keys that payloads are encrypted with at rest: a new one, and which of them are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import orjson

from retry.cli.output import say, say_json

if TYPE_CHECKING:
    from retry.operations.keys_in_use import KeyUse
    from retry.sealing.key_file import Keys


@click.group()
def keys() -> None:
    """Make keys that payloads are encrypted with at rest, and list which are needed."""


@keys.command("new")
@click.argument("key_id", metavar="ID")
def make_key(key_id: str) -> None:
    """Make a key called ID, for the file that RETRY_ENCRYPTION_KEYS names. An id is never used again for another key."""
    from retry.sealing.key_file import new_line

    say(new_line(key_id))


@keys.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def list_keys(as_json: bool) -> None:
    """List keys, and how much waits under each. Those of the file come first, the one that seals before all.

    A key under which nothing waits can be taken out of the file, once no process writes with it: each has read the file anew
    within six seconds. What waits is read from the changelog, and no key is needed for that.
    """
    from retry import settings as environment
    from retry.operations.keys_in_use import KeyUse, keys_in_use
    from retry.sealing.key_file import Keys, read

    settings = environment.from_environment()
    held = read(settings.encryption_keys) if settings.encryption_keys else Keys(None, {})
    used = keys_in_use(settings)
    for key_id in (*held.by_id, *sorted(key for key in used if key is not None and key not in held.by_id), None):
        use = used.get(key_id, KeyUse())
        if as_json:
            about = {"key": key_id, "in_file": key_id in held.by_id, "seals": key_id is not None and key_id == held.newest}
            say_json(orjson.dumps({**about, "entries": use.entries, "held": use.held, "edits": use.edits}))
        elif key_id is not None or use.entries:
            say(_format_key(key_id, held, use))


def _format_key(key_id: str | None, held: Keys, use: KeyUse) -> str:
    if key_id is None:
        return f"{'(in clear)':<40}  {use.entries:,} entries"
    where = "seals" if key_id == held.newest else "opens" if key_id in held.by_id else "NOT IN THE FILE"
    if not use.entries and not use.edits:
        return f"{key_id:<40}  {where}  nothing waits under it"
    edits = f", {use.edits:,} edits of actions that are not done" if use.edits else ""
    return f"{key_id:<40}  {where}  {use.entries:,} entries, {use.held:,} of them held{edits}"
