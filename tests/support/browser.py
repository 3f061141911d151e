"""Chromium as tests use it: pages that tell all that went wrong in them, and what in a page keeps people out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.tools import axe, chromium

# Before any script of the page: whatever its policy refuses is kept, also what a listener of its own would hide.
_KEEP_REPORTS = """
  window.__refused = [];
  document.addEventListener("securitypolicyviolation", event =>
    window.__refused.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`), true);
"""
_RUN_AXE = """async () => (await axe.run(document, {resultTypes: ["violations"],
  runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]})).violations
  .flatMap(rule => rule.nodes.map(node => `${rule.id}: ${node.target} ${node.failureSummary}`))"""
# What does not fit: the page itself is to be no wider than the window, whatever scrolls inside of it.
_OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
# Of a starved machine.
_WAIT_MS = 180_000.0

Scheme = Literal["light", "dark"]
WIDE, PHONE = (1280, 900), (400, 860)
Look = tuple[Scheme, tuple[int, int]]
LOOKS: tuple[Look, ...] = (("light", WIDE), ("dark", WIDE), ("light", PHONE), ("dark", PHONE))
# `make check` has each scheme and each width once.
_LATER = ("dark", WIDE), ("light", PHONE)
EACH_LOOK = [
    pytest.param(look, id=f"{look[0]}-{look[1][0]}", marks=[pytest.mark.slow] if look in _LATER else []) for look in LOOKS
]


@contextmanager
def browsing() -> Iterator[Browser]:
    """Chromium, without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


class Watched:
    """One page, and all that went wrong in it since it was opened.

    Attributes:
      page: Playwright's.
      troubles: dialogs, errors, messages of the browser's console, what its policy refused, requests to anywhere else.
    """

    def __init__(
        self, browser: Browser, base_url: str = "", scheme: Scheme = "light", size: tuple[int, int] = WIDE, **options: Any
    ) -> None:
        self._base_url = base_url
        self._context = browser.new_context(
            base_url=base_url or None, color_scheme=scheme, locale="en-US",
            viewport={"width": size[0], "height": size[1]}, **options,
        )
        self._context.set_default_timeout(_WAIT_MS)
        self._context.add_init_script(_KEEP_REPORTS)
        self._context.add_init_script(path=axe())
        self.page, self.troubles = self._context.new_page(), list[str]()
        self._listen(self.page)

    def _listen(self, page: Page) -> None:
        def dialog(shown: Any) -> None:
            self.troubles.append(f"a dialog: {shown.message}")
            shown.dismiss()

        def request(asked: Any) -> None:
            if self._base_url and not asked.url.startswith((self._base_url, "data:", "blob:")):
                self.troubles.append(f"a request to {asked.url}")

        page.on("dialog", dialog)
        page.on("request", request)
        page.on("pageerror", lambda error: self.troubles.append(f"an error: {error}"))
        page.on("console", lambda said: self.troubles.append(f"{said.type} in {page.url}: {said.text}"))

    def refused(self) -> list[str]:
        """List what the page's policy has refused since it was loaded."""
        return list(self.page.evaluate("() => window.__refused"))

    def violations(self) -> list[str]:
        """List what axe-core finds, a line for each place; and that the page is wider than its window."""
        # On a slow machine a page is there before the whole of it is.
        self.page.wait_for_load_state()
        found = list(self.page.evaluate(_RUN_AXE))
        overflow = self.page.evaluate(_OVERFLOW)
        return [*found, *([f"the page is {overflow} pixels too wide"] if overflow > 0 else [])]

    def close(self) -> None:
        """Close the page and forget its cookies."""
        self._context.close()


# Opens a page: `opened("/letters", scheme="dark")`.
Open = Callable[..., Watched]
