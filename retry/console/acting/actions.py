"""Actions on letters, as somebody asks for them in the console: previewed, started once, held, resumed, cancelled, undone.

All that counts is in the changelog: whether the console lives on makes no difference to what was started.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import NamedTuple

from starlette.exceptions import HTTPException

from retry.clock import iso
from retry.console.acting import standing_actions
from retry.console.acting.audit import REVEAL
from retry.console.acting.previews import KeptPreview
from retry.console.reading import lists
from retry.console.reading.selected_letters import SelectedLetters
from retry.console.web import filters, masks
from retry.console.web.app import Console, demand_found
from retry.console.web.rights import Role, Viewer
from retry.delay_queue import action_records
from retry.errors import ActionRefused, RebuildInProgress
from retry.operations.act import options, overview, start
from retry.operations.act.audit import Audit
from retry.operations.act.options import ActOptions, AskedBy
from retry.operations.act.preview import Preview, preview
from retry.operations.act.request import Request
from retry.operations.act.selection import select_letters
from retry.operations.cluster import Cluster
from retry.operations.listing import Listing
from retry.policies.masks import KEY
from retry.policies.registry import Registry
from retry.scheduling.tasks.framed_values import FramedValues

# Parked records that are looked at: the newest of each partition.
_NEWEST = 1_000_000
_HIDDEN = "what changes is not shown: that takes the right to reveal payloads, with nothing masked but keys"


class Ask(NamedTuple):
    """An action as somebody asks for it: letters that `words`, a filter, means; of these only `names`, where there are any."""

    kind: str
    words: str
    names: tuple[str, ...] = ()
    options: ActOptions = ActOptions()
    reason: str = ""


def begin_preview(console: Console, viewer: Viewer, asked: Ask, action_id: bytes | None = None) -> KeptPreview:
    """Begin the preview of an action; only letters of teams in which the viewer is operator are included.

    Raises:
      FilterInvalid, OptionsInvalid, ActionRefused: this cannot be asked for.
      RebuildInProgress: nobody sees yet what there is.
      HTTPException: 403, the filter asks for what this viewer may not see.
    """
    demand_seen(console)
    if not asked.words.strip() and not asked.names:
        raise ActionRefused("say which letters: a filter as team:payments, or choose some; state:waiting means all that wait")
    asks_payload = filters.asks_payload(filters.read(asked.words, viewer, console.registry()))
    registry = console.registry()
    # What is wrong with the names is told at once, and so is a filter that is none.
    try:
        selection = select_letters(asked.words, asked.names, console.clock_ms(), console.replica.in_group)
    except ValueError as wrong:
        raise ActionRefused(f"{wrong.args[0]!r} is no name of a letter") from None
    about = AskedBy(viewer.name, asked.reason, selection.words, registry.digest)
    # Without a registry it says so where a value is framed.
    framing = lambda: console.framed or FramedValues({})  # noqa: E731
    request = options.build_request(asked.kind, asked.options, about, framing=framing)
    if action_id is not None:
        request = request._replace(id=action_id)
    if asks_payload:
        console.audit.write(REVEAL, viewer.name, f"filter {asked.words}", teams=viewer.roles)
    make = partial(_make_preview, console, viewer, asked, request, registry)
    return console.previews.begin_preview(request.id.hex(), viewer.name, asked.kind, selection.words, make)


def _make_preview(
    console: Console, viewer: Viewer, asked: Ask, request: Request, registry: Registry, kept: KeptPreview
) -> Preview:
    settings, shards, scope = console.settings, standing_actions.load_shard_numbers(console), viewer.sight().acts
    start.demand_readiness(shards.admin, settings.app_id)
    now_ms = shards.now_ms()
    selection = select_letters(asked.words, asked.names, now_ms, console.replica.in_group).of_teams(scope)
    listing = Listing(Cluster(settings), registry, _NEWEST, kept.notes.append)
    letters = SelectedLetters(
        console.replica.payloads, listing, selection, scope=scope, shards=shards.count, now_ms=now_ms,
        note_progress=kept.note_progress,
    )  # fmt: skip
    fresh = console.replica.freshness()
    if behind := fresh.lag_records:
        kept.notes.append(f"What this page shows is {behind:,} records behind: letters among those are left alone")
    found = preview(settings, registry, request, selection.selects, now_ms, letters)
    if letters.foreseen:
        kept.notes.append(_describe_foreseen(letters.foreseen, fresh.as_of_ms))
    if asked.kind == action_records.EDIT:
        _demand_sees_all(viewer, found, registry)
    return _reveal_payloads(console, viewer, options.add_ramp(found, asked.options, registry))


def _demand_sees_all(viewer: Viewer, found: Preview, registry: Registry) -> None:
    """Raise ActionRefused where a viewer may not see all of the letter that is to be edited."""
    if not _may_reveal_all(viewer, found):
        raise ActionRefused("to edit a letter takes the right to reveal payloads of its team; nothing was done")
    if any(part.startswith("$") for part in masks.list_masked(registry, viewer.sight(), found.request.action.teams)):
        raise ActionRefused(f"{masks.REFUSED_EDIT}; nothing was done")


def _may_reveal_all(viewer: Viewer, found: Preview) -> bool:
    return all(viewer.may_reveal(team or None) for team in found.request.action.teams)


def _may_see_changes(console: Console, viewer: Viewer, found: Preview) -> bool:
    """Whether a viewer may see what an action changes in values and headers."""
    masked = masks.list_masked(console.registry(), viewer.sight(), found.request.action.teams)
    return _may_reveal_all(viewer, found) and set(masked) <= {KEY}


def _describe_foreseen(letters: int, as_of_ms: int | None) -> str:
    as_of = "" if as_of_ms is None else f" of {iso(as_of_ms)[:19].replace('T', ' ')} UTC"
    return (
        f"{letters:,} letters are counted as the console's copy{as_of} has them, and were not read from Kafka; workers look at"
        " each of them again before they act"
    )


def _reveal_payloads(console: Console, viewer: Viewer, found: Preview) -> Preview:
    """Hide the payload changes of a preview where the viewer may not see them; else write to the audit that they are revealed."""
    changed = [each for each in found.examples if each.diff]
    if not changed:
        return found
    if _may_see_changes(console, viewer, found):
        console.audit.reveal(viewer.name, [each.letter for each in changed], found.request.action.teams)
        return found
    hidden = [each._replace(diff=[_HIDDEN]) if each.diff else each for each in found.examples]
    return found._replace(examples=hidden)


def find_preview(console: Console, viewer: Viewer, action_id: str) -> KeptPreview:
    """Find the preview of this id; raises HTTPException 404 where this viewer has none, and 410 where it is too old."""
    found = console.previews.find_preview(action_id, viewer.name)
    if found is not None and _is_still_for(console, viewer, found):
        return found
    if console.previews.was(action_id, viewer.name):
        raise HTTPException(HTTPStatus.GONE, "this preview is older than 50 minutes, or many came after it: preview it again")
    raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such preview; a restart of the console forgets them: preview it again")


def _is_still_for(console: Console, viewer: Viewer, kept: KeptPreview) -> bool:
    if kept.found is None:
        return True
    teams = kept.found.request.action.teams
    if not all(viewer.may(Role.VIEWER, team or None) for team in teams):
        return False
    shows_payload = any(each.diff not in ([], [_HIDDEN]) for each in kept.found.examples)
    return not shows_payload or _may_see_changes(console, viewer, kept.found)


def start_action(console: Console, viewer: Viewer, action_id: str, expect: int | None) -> None:
    """Start what was previewed, and return when the console shows it; a second start of it, from wherever, does nothing.

    Raises:
      WriteNotShown: it is started, and not shown yet.
      ActionRefused: `expect` is not how many letters there are, is missing where they are many, or nothing can be done.
      RebuildInProgress, HTTPException: as `begin_preview` and `find_preview`.
    """
    demand_seen(console)
    try:
        found = find_preview(console, viewer, action_id)
    except HTTPException:
        # Started from another console, or before this one was started.
        if _asked_for(console, viewer, action_id) is None:
            raise
        return
    with found.starting:
        if found.is_started:
            return
        if found.is_spent:
            found.is_started = _asked_for(console, viewer, action_id) is not None
            if not found.is_started:
                raise ActionRefused("it was not started, and what waits may have changed: preview it again")
            return
        if found.found is None:
            raise found.fault or ActionRefused("it is still being worked out; start it when you have seen what it does")
        _start(console, viewer, found, found.found, expect)
        found.is_started = True
        console.previews.release(found)
    standing_actions.await_shown(lambda: standing_actions.find_action(console.replica, viewer.scope(), action_id) is not None)


def demand_seen(console: Console) -> None:
    """Raise RebuildInProgress where the console does not show yet what there is: nobody acts on what cannot be seen."""
    fresh = console.replica.freshness()
    if fresh.state == "rebuilding":
        raise RebuildInProgress(fresh.progress)


def _start(console: Console, viewer: Viewer, kept: KeptPreview, found: Preview, expect: int | None) -> None:
    count, kind = found.chosen.count, found.request.action.kind
    if not count:
        raise ActionRefused("there is no letter that this can be done for; nothing was done")
    if expect is None and count > options.UNASKED_MAX and kind != action_records.UNDO:
        raise ActionRefused(f"these are {count:,} letters: type their number")
    if expect is not None and expect != count:
        raise ActionRefused(f"these are {count:,} letters, not {expect:,}; nothing was done")
    standing_actions.demand_each(viewer, Role.OPERATOR, found.request.action.teams)
    shards = standing_actions.load_shard_numbers(console)
    start.demand_readiness(shards.admin, console.settings.app_id)
    kept.is_spent = True
    start.start_preview(shards, found)


def _asked_for(console: Console, viewer: Viewer, action_id: str) -> overview.ActionOverview | None:
    return _find_visible_action(overview.list_overviews(standing_actions.load_shard_numbers(console)), viewer, action_id)


def _find_visible_action(found: list[overview.ActionOverview], viewer: Viewer, action_id: str) -> overview.ActionOverview | None:
    mine = (each for each in found if lists.sees_action(viewer.scope(), each.action))
    return next((each for each in mine if each.id.hex() == action_id), None)


def send_order(console: Console, viewer: Viewer, what: str, action_id: str, reason: str) -> None:
    """Hold, resume or cancel an action, and return when the console shows that.

    Raises:
      ActionRefused: nothing of it is left, or it is not held.
      WriteNotShown: it is ordered, and not shown yet.
    """
    shards = standing_actions.load_shard_numbers(console)
    about = _require_operator(overview.list_overviews(shards), viewer, action_id)
    overview.ORDERS[what](shards, about, viewer.name, reason)
    standing_actions.await_shown(
        lambda: _is_ordered(standing_actions.find_action(console.replica, viewer.scope(), action_id), what)
    )


def _is_ordered(about: overview.ActionOverview | None, what: str) -> bool:
    """Whether an action is as an order wants it, or has come to its end before."""
    if about is None or not about.left:
        return True
    return {"hold": about.held is not None, "resume": about.held is None, "cancel": about.cancelled is not None}[what]


def begin_undo_preview(console: Console, viewer: Viewer, action_id: str, reason: str) -> KeptPreview:
    """Begin the preview of the undo of a discard, and return it at once.

    Raises ActionRefused, which says what can be done instead, and HTTPException 404 or 403.
    """
    shards = standing_actions.load_shard_numbers(console)
    about = _require_operator(overview.list_overviews(shards), viewer, action_id)
    start.demand_readiness(shards.admin, console.settings.app_id)
    asked = start.build_undo(Audit(console.settings, shards.admin), about, viewer.name, reason)

    def compute_preview(kept: KeptPreview) -> Preview:
        found, too_late = asked.preview(shards)
        if too_late:
            kept.notes.append(too_late)
        return found

    words = f"action {action_id}"
    return console.previews.begin_preview(asked.request.id.hex(), viewer.name, action_records.UNDO, words, compute_preview)


def _require_operator(found: list[overview.ActionOverview], viewer: Viewer, action_id: str) -> overview.ActionOverview:
    about = demand_found(_find_visible_action(found, viewer, action_id), "there is no such action, or it is older than 30 days")
    standing_actions.demand_each(viewer, Role.OPERATOR, about.action.teams)
    return about
