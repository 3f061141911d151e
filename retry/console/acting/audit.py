"""The audit in the console: what people do there is written to it before it takes effect, and a page shows it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as NotInTime
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from retry import clock
from retry.console.reading.lists import AUDIT_FIELDS
from retry.console.web.app import Console, console_of, query_of, render_page, viewer_of
from retry.console.web.rights import Role, Sight, needs
from retry.errors import RecordUnwritten
from retry.kafka import client_config, topics
from retry.kafka.record_producer import Records
from retry.operations.act import audit
from retry.operations.act.options import KINDS
from retry.settings import Settings

# What people do in the console, written to the audit before it takes effect: who was shown which payload, who paused what.
#
# What an action does to letters is written by the workers, with the effect. The records here have the same form; see
# `retry.operations.act.audit`.

REVEAL = "reveal"
_WITHIN_S = 15.0
# All in one partition, so they are read in the order in which they were done.
_PARTITION = 0


class AuditTrail:
    """Writes records of the audit topic, one at a time; connects when the first is written. For any thread."""

    def __init__(self, settings: Settings, records: Records | None = None) -> None:
        self._settings, self._topic = settings, topics.build_topic_names(settings.app_id).audit
        self._records, self._opening = records, threading.Lock()

    def reveal(self, by: str, letters: Sequence[str], teams: Iterable[str] = ()) -> None:
        """Write that somebody is going to be shown payloads; nothing may be shown where this raises RecordUnwritten."""
        self.write(REVEAL, by, "", letters, teams)

    def write(self, kind: str, by: str, reason: str, letters: Sequence[str] = (), teams: Iterable[str] = ()) -> None:
        """Write what somebody is about to do to letters named as `retry letters` prints them; raises RecordUnwritten."""
        value = audit.encode_person_act(kind, by, reason, clock.wall_ms(), letters, teams)
        written = self._producer().write(self._topic, _PARTITION, audit.PERSON_KEY, value)
        try:
            written.result(_WITHIN_S)
        except NotInTime:
            raise RecordUnwritten(f"nobody has acknowledged within {_WITHIN_S:.0f} s what is done here; it is not done") from None

    def _producer(self) -> Records:
        with self._opening:
            if self._records is None:
                self._records = Records(client_config.build_records_config(self._settings))
            return self._records

    def close(self) -> None:
        with self._opening:
            if self._records is not None:
                self._records.close()


# The page of the audit: who did what to which letters, and who was shown what, an action a row; kept for a year.
#
# | path | what it shows |
# | --- | --- |
# | `GET /audit?action=…&by=…&kind=…&team=…&letter=…&after=…` | a page, newest first; each field that is given must be so |

PART = "audit"
ROWS = 50
# Completed where somebody types what was done.
_KINDS = (*KINDS, REVEAL, "cancel", "hold", "pause", "resume")


def build_routes(console: Console) -> list[Route]:
    console.keep_fresh(PART, "audit-live.html", lambda sight, argument: _build_page(console, sight, dict(parse_qsl(argument))))
    return [Route("/audit", render_audit)]


@needs(Role.VIEWER, *AUDIT_FIELDS, "after")
def render_audit(request: Request) -> Response:
    given = query_of(request)
    shown = _build_page(console_of(request), viewer_of(request).sight(), given)
    return render_page(request, "audit.html", live=(PART, urlencode(given)), **shown)


def _build_page(console: Console, sight: Sight, given: dict[str, str]) -> dict[str, Any]:
    asked = parse_conditions(given)
    found = console.replica.list_audited_actions(sight.scope, given.get("after") or None, ROWS, asked)
    teams = sorted({route.team for route in console.registry().list_routes() if sight.scope is None or route.team in sight.scope})
    return {"found": found, "wanted": asked, "given": given, "teams": teams, "kinds": _KINDS}


def parse_conditions(given: Mapping[str, str]) -> dict[str, str]:
    """Return the values that rows of the audit must have, by field; empty fields are left out."""
    return {name: value for name in AUDIT_FIELDS if (value := given.get(name, "").strip())}
