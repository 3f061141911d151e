"""Previews of actions, kept until they are started: in memory. A restart forgets them; nothing that runs depends on them."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from retry import clock
from retry.errors import ActionRefused, RetryError
from retry.operations.act.preview import Preview
from retry.operations.act.start import PREVIEW_MS_MAX

log = logging.getLogger(__name__)

# Of one person; the fields of a form that is sent again and again.
_OF_ONE_MAX, _KEPT_MAX = 20, 200
# Each takes some hundred bytes.
_MEMBERS_MAX = 2_000_000
# Each reads records of letters, beside what is there to follow the topics.
_AT_ONCE, _WAITING_MAX, _WAITING_OF_ONE_MAX = 2, 20, 5
_FORGOTTEN_MAX = 10_000


@dataclass(eq=False)
class KeptPreview:
    """A preview that somebody has asked for.

    Attributes:
      by: who asked; nobody else may look at it or start it.
      found: what would be done; None while it is worked out, or where that failed.
      notes: what was not looked at, in words.
      is_spent: whether a start was tried: what is there since then the changelog says.
      is_started: whether that is known to have succeeded.
    """

    id: str
    by: str
    kind: str
    words: str
    made_ms: int
    found: Preview | None = None
    fault: RetryError | None = None
    notes: list[str] = field(default_factory=list)
    starting: threading.Lock = field(default_factory=threading.Lock)
    letters_read: int = 0
    is_dropped: bool = False
    is_spent: bool = False
    is_started: bool = False
    refusal: str = ""
    done: threading.Event = field(default_factory=threading.Event)

    def note_progress(self, letters_read: int) -> None:
        """Note how many letters were looked at; raises ActionRefused where nobody wants the preview any more."""
        self.letters_read = letters_read
        if self.is_dropped:
            raise ActionRefused("the preview was dropped")

    @property
    def members(self) -> int:
        """How many letters are held in memory for it."""
        return self.found.chosen.count if self.found else 0


class Previews:
    """Works previews out, a few at a time, and keeps them for 50 minutes. For any thread."""

    def __init__(self, now_ms: Callable[[], int] = clock.wall_ms) -> None:
        self._now_ms, self._lock = now_ms, threading.Lock()
        self._kept: OrderedDict[str, KeptPreview] = OrderedDict()
        self._forgotten: OrderedDict[str, str] = OrderedDict()
        self._pool = ThreadPoolExecutor(_AT_ONCE, "preview")

    def begin_preview(
        self, action_id: str, by: str, kind: str, words: str, make: Callable[[KeptPreview], Preview]
    ) -> KeptPreview:
        """Begin to compute a preview, and return at once; return the known one where `by` has a preview for `action_id`.

        Raises ActionRefused: too many are under way.
        """
        kept = KeptPreview(action_id, by, kind, words, self._now_ms())
        with self._lock:
            self._forget_old()
            if (known := self._kept.get(action_id)) is not None and known.by == by:
                return known
            waiting = [each.by for each in self._kept.values() if not each.done.is_set()]
            if len(waiting) >= _WAITING_MAX or waiting.count(by) >= _WAITING_OF_ONE_MAX:
                raise ActionRefused(f"{len(waiting)} previews are being worked out; ask again when one of them is done")
            self._kept[action_id] = kept
            self._make_room(by)
        self._pool.submit(self._work_out, kept, make)
        return kept

    def _work_out(self, kept: KeptPreview, make: Callable[[KeptPreview], Preview]) -> None:
        try:
            kept.found = make(kept)
        except RetryError as fault:
            kept.fault = fault
        except Exception as fault:
            # Nobody waits for what a thread of the pool raises.
            log.error("the preview %s of %s failed", kept.id, kept.words, exc_info=fault)
            kept.fault = ActionRefused("the preview failed for a reason that the log of the console has; ask again")
        finally:
            kept.done.set()
            with self._lock:
                self._make_room(kept.by)

    def find_preview(self, action_id: str, by: str) -> KeptPreview | None:
        """Find the preview that a person asked for under an id; None where the preview is there no more."""
        with self._lock:
            self._forget_old()
            kept = self._kept.get(action_id)
            return kept if kept is not None and kept.by == by else None

    def was(self, action_id: str, by: str) -> bool:
        with self._lock:
            return self._forgotten.get(action_id) == by

    def release(self, kept: KeptPreview) -> None:
        with self._lock:
            kept.found = None

    def drop_preview(self, kept: KeptPreview) -> None:
        with self._lock:
            self._remove_preview(kept.id)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _forget_old(self) -> None:
        oldest_ms = self._now_ms() - PREVIEW_MS_MAX
        while self._kept and (first := next(iter(self._kept.values()))).made_ms < oldest_ms:
            self._remove_preview(first.id)

    def _make_room(self, by: str) -> None:
        """Forget the oldest: of this person where these are many, and of all where they hold too much."""
        own = [each.id for each in self._kept.values() if each.by == by and each.done.is_set()]
        for action_id in own[:-_OF_ONE_MAX]:
            self._remove_preview(action_id)
        ended = [each for each in self._kept.values() if each.done.is_set()]
        for each in ended[:-1]:
            if sum(kept.members for kept in self._kept.values()) <= _MEMBERS_MAX and len(self._kept) <= _KEPT_MAX:
                return
            self._remove_preview(each.id)

    def _remove_preview(self, action_id: str) -> None:
        kept = self._kept.pop(action_id, None)
        if kept is not None:
            kept.is_dropped = True
            self._forgotten[action_id] = kept.by
            while len(self._forgotten) > _FORGOTTEN_MAX:
                self._forgotten.popitem(last=False)
