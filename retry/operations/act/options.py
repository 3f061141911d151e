"""What goes with each kind of action, and what is asked for with it; the same for the command, the console and its API."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from retry.delay_queue import ramp_records
from retry.delay_queue.action_records import EDIT, PATCH, REDIRECT, RETRY, Action, Patch
from retry.delay_queue.ramp_records import Ramp
from retry.delivery.letter_changes import find_patch_fault
from retry.errors import ActionRefused
from retry.operations.act.preview import Preview
from retry.operations.act.request import DueTimes, Edit, Request, SchemaFrames, renew_action
from retry.policies.registry import Registry

KINDS = (RETRY, REDIRECT, "park", "discard", EDIT, PATCH)
_DUE, _RAMP = {"at", "spread", "postpone"}, {"ramp", "keep", "settle", "silence"}
# Which options go with which kind.
OPTIONS_OF: dict[str, set[str]] = {
    RETRY: {*_DUE, *_RAMP}, REDIRECT: {"to", *_DUE, *_RAMP}, "park": set(), "discard": set(),
    EDIT: {"value", "set_headers", "removed", "now"}, PATCH: {"set_headers", "removed", "merge_patch", "now"},
}  # fmt: skip
# Of more letters than this nobody has looked at each.
UNASKED_MAX = 1_000
_SETTLE_MS, _SILENCE_MS = 10_000, 120_000


class AskedBy(NamedTuple):
    """Who asks, why, and for which letters, as the action remembers it; `policies` is the SHA-256 of the policy file."""

    by: str
    reason: str
    filter: str
    policies: str


class OptionsInvalid(ValueError):
    """Options that do not go together; the message names them."""


class ActOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of an action besides its kind; None, or empty, where an option is not given.

    Attributes:
      at: when letters are due, in milliseconds since 1970.
      spread, postpone, settle, silence: milliseconds.
      ramp, keep: whether letters are sent in steps, and the part of them that must recover.
      to: the topic of a redirect.
      value: the new value of an edit.
      set_headers, removed: headers that an edit or a patch sets, and names of those that it removes.
      now: of an edit or a patch, whether letters that wait are retried at once, as letters that rest always are.
    """

    at: int | None = None
    spread: int | None = None
    postpone: int | None = None
    ramp: bool | None = None
    keep: float | None = None
    settle: int | None = None
    silence: int | None = None
    to: str | None = None
    value: bytes | None = None
    set_headers: dict[str, str] = {}
    removed: list[str] = []
    merge_patch: str | None = None
    now: bool = False

    @property
    def given(self) -> set[str]:
        given = {name for name in self.__struct_fields__ if getattr(self, name) not in (None, {}, [])}
        return given if self.now else given - {"now"}

    @property
    def headers(self) -> dict[str, str | None]:
        """The header changes of an edit or a patch: new values by name, None for a header that is removed."""
        return {**dict.fromkeys(self.removed), **self.set_headers}


def build_request(
    kind: str, options: ActOptions, about: AskedBy, named: Callable[[str], str] = str,
    framing: Callable[[], SchemaFrames] | None = None,
) -> Request:  # fmt: skip
    """Check the options of an action, and build its request.

    Args:
      named: what an option is called where it was given.
      framing: opens the schema registry, for an edit.

    Raises:
      OptionsInvalid: the options do not go together, or with this kind.
      ActionRefused: the patch is not a valid one.
    """
    _check(kind, options, named)
    patch = Patch(options.headers, options.merge_patch or "", options.now) if kind == PATCH else None
    if patch is not None and (wrong := find_patch_fault(patch)):
        raise ActionRefused(wrong)
    action = Action(
        kind, about.by, asked_at_ms=0, slices=[], members=0, policies=about.policies, target=options.to, patch=patch,
        reason=about.reason, filter=about.filter,
    )  # fmt: skip
    due = DueTimes(options.at, options.spread or 0, options.postpone or 0)
    if kind != EDIT:
        return renew_action(action, due)
    return renew_action(action, due, Edit(options.value, options.headers, framing() if framing else None, options.now))


def choose_ramp(kind: str, options: ActOptions, letters: int) -> Ramp | None:
    """Decide in which steps so many letters are sent; None where they are all due as they are asked for."""
    given = options.given
    if "ramp" not in OPTIONS_OF[kind] or options.ramp is False or given & _DUE:
        return None
    if not given & _RAMP and letters <= UNASKED_MAX:
        return None
    return Ramp(
        ramp_records.KEEP if options.keep is None else options.keep, ramp_records.compute_steps(letters),
        _SETTLE_MS if options.settle is None else options.settle, _SILENCE_MS if options.silence is None else options.silence,
    )  # fmt: skip


def add_ramp(found: Preview, options: ActOptions, registry: Registry) -> Preview:
    """Return a preview whose letters are sent in growing steps (a ramp), where the options, or their number, ask for it."""
    return found.with_ramp(choose_ramp(found.request.action.kind, options, found.chosen.count), registry.list_group_topics())


def _check(kind: str, options: ActOptions, named: Callable[[str], str]) -> None:
    given = options.given
    if wrong := sorted(given - OPTIONS_OF[kind]):
        raise OptionsInvalid(f"{', '.join(map(named, wrong))} does not go with {kind}")
    at, spread, postpone = map(named, ("at", "spread", "postpone"))
    if len(given & _DUE) > 1:
        raise OptionsInvalid(f"give one of {at}, {spread} and {postpone}")
    details = given & (_RAMP - {"ramp"})
    if given & _DUE and (details or options.ramp):
        raise OptionsInvalid(f"a ramp sends letters now: it does not go with {at}, {spread} or {postpone}")
    if options.ramp is False and details:
        raise OptionsInvalid(f"{', '.join(map(named, sorted(details)))} is of a ramp, and there is to be none")
    if kind == REDIRECT and not options.to:
        raise OptionsInvalid(f"redirect needs {named('to')}, a topic")
    if kind == EDIT and not given - {"now"}:
        raise OptionsInvalid(f"edit needs {named('value')}, {named('set_headers')} or {named('removed')}")
