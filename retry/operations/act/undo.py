"""Undoing a discard while that is possible: letters that still wait to be discarded go back to where they were."""

from __future__ import annotations

from typing import NamedTuple

from retry.dead_letters import retry_headers as names
from retry.delay_queue import action_records
from retry.delay_queue.action_records import Action
from retry.delivery.act_audit import DONE
from retry.delivery.acted_entry import DISCARDED
from retry.errors import ActionRefused
from retry.kafka import topics
from retry.operations.act.audit import Audit
from retry.operations.act.choose import Meant
from retry.operations.act.overview import ActionOverview
from retry.operations.act.request import Request, renew_action
from retry.operations.letters.found_letter import FoundLetter

_INSTEAD = {
    action_records.RETRY: "what is sent stays sent; what still waits can be given another time with `retry act retry --at`",
    action_records.REDIRECT: "what is sent stays sent; what still waits can be redirected again",
    action_records.PARK: "its letters lie on their parking topics; return them with `retry act retry state:parked`",
    action_records.EDIT: "the letter as it was lies in the topic of discarded letters, marked superseded; edit it again",
    action_records.PATCH: "the letters as they were lie in the topic of discarded letters, marked superseded; patch them again",
    action_records.ERASE: "nothing is left of its letters",
    action_records.UNDO: "discard the letters again",
}


class Undoing(NamedTuple):
    """An undo that can be asked for.

    Attributes:
      letters: `topic/partition/offset` of the letters that the action was done for.
      meant: whether a letter is one of them and still waits to be discarded.
    """

    request: Request
    letters: frozenset[str]
    meant: Meant

    def too_late(self, undone: int) -> str:
        """Describe the letters for which the undo comes too late, and how to return them; empty where there are none.

        Args:
          undone: how many letters the undo brings back.
        """
        if not (late := len(self.letters) - undone):
            return ""
        told = f"{late:,} of {len(self.letters):,} letters: already discarded, or acted on since"
        # What is discarded says by which action, and is kept for longer than the window lasts.
        filter_ = f"state:{DISCARDED} header.{names.ACTION}:{self.request.action.undoes}"
        return f"{told}. To return those that are discarded: retry act retry {filter_}"


def undoing(audit: Audit, about: ActionOverview, by: str, reason: str) -> Undoing:
    """Build the undo of a discard.

    Raises:
      ActionRefused: the action is no discard, or is not over.
      TopicsInvalid: the audit cannot be read.
    """
    kind, action_id = about.action.kind, about.id.hex()
    if kind != action_records.DISCARD:
        raise ActionRefused(f"{'an' if kind[0] in 'aeu' else 'a'} {kind} cannot be undone: {_INSTEAD.get(kind, '')}")
    if about.left:
        raise ActionRefused(f"it is not over yet; first: retry actions cancel {action_id}")
    told = audit.read_records(about.action.asked_at_ms - action_records.CLOCKS_MS, action_id)
    done = frozenset(each.letter for record in told for each in record.letters if each.result == DONE)
    discarded = topics.build_topic_names(audit.settings.app_id).discarded

    def is_selected(letter: FoundLetter) -> bool:
        marked = letter.ours.get(names.ACTION) == action_id.encode()
        return marked and letter.target == discarded and str(letter.source) in done

    action = Action(
        action_records.UNDO, by=by, asked_at_ms=0, slices=[], members=0, undoes=action_id, reason=reason,
        filter=f"action {action_id}",
    )  # fmt: skip
    return Undoing(renew_action(action), done, is_selected)
