"""All routes of what is done from the console, and of the API."""

from __future__ import annotations

from starlette.routing import Route

from retry.console.acting import (
    act_pages,
    action_pages,
    api,
    audit_page,
    named_pages,
    note_forms,
    pause_pages,
    policy_pages,
)  # fmt: skip
from retry.console.web.app import Console

_MODULES = (act_pages, action_pages, pause_pages, policy_pages, named_pages, audit_page, note_forms, api)


def build_routes(console: Console) -> list[Route]:
    return [route for module in _MODULES for route in module.build_routes(console)]
