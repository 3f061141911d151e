"""An operator who does tasks in the console, and what each of them takes: clicks, fields, scrolling, seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

from playwright.sync_api import Locator, Page, expect

# How far the page has to be scrolled until all of an element is in the window, or what fits into it, in windows.
_TO_SCROLL = """each => {
  const place = each.getBoundingClientRect();
  const down = Math.min(Math.max(0, place.bottom - innerHeight), Math.max(0, place.top));
  return (place.top < 0 ? -place.top : down) / innerHeight;
}"""
_HAS_FOCUS = "each => each === document.activeElement"


@dataclass
class Effort:
    """The effort of a task; a click into a field before typing counts as any other, `fields` are those that were typed into."""

    clicks: int = 0
    fields: int = 0
    screens: float = 0.0
    seconds: float = 0.0


class Operator:
    """Does tasks in a page; what is done outside of `task` is not counted."""

    def __init__(self, page: Page) -> None:
        self.page, self.efforts, self._effort = page, dict[str, Effort](), Effort()

    @contextmanager
    def task(self, name: str) -> Iterator[None]:
        self._effort, begun = Effort(), monotonic()
        yield
        self._effort.seconds = monotonic() - begun
        self.efforts[name] = self._effort

    def see(self, place: Locator) -> None:
        """Wait until something is shown, and scroll there."""
        expect(place).to_be_visible()
        self._effort.screens += place.evaluate(_TO_SCROLL)
        place.scroll_into_view_if_needed()

    def click(self, place: Locator) -> None:
        self.see(place)
        self._effort.clicks += 1
        place.click()

    def type(self, place: Locator, text: str) -> None:
        """Type into a field, which is clicked first where it does not have the focus."""
        self.see(place)
        if not place.evaluate(_HAS_FOCUS):
            self.click(place)
        self._effort.fields += 1
        place.fill(text)


def render_efforts(efforts: Mapping[str, Effort]) -> str:
    """Write the table of the docs, a line a task."""
    lines = ["| task | clicks | fields | screens scrolled | seconds |", "| --- | ---: | ---: | ---: | ---: |"]
    for name, each in efforts.items():
        lines.append(f"| {name} | {each.clicks} | {each.fields} | {each.screens:.1f} | {each.seconds:.1f} |")
    return "\n".join(lines)
