"""Markdown pages as tests read them: their blocks of code, and the commands that a reader would type."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "charts").rglob("*.md"))]
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_VARIABLE = re.compile(r"[A-Z_]+=")
_BETWEEN = "\n;&|()<"
_FILE = re.compile(r"# ([\w.-]+\.\w+)\n")


class Block(NamedTuple):
    """One fenced block: `sh`, `yaml`, `text`… and what stands in it, without the page's indentation."""

    language: str
    text: str

    @property
    def file_name(self) -> str:
        """The file as which a reader saves it: its first line is a comment with the name. Empty for others."""
        named = _FILE.match(self.text)
        return named[1] if named else ""


    def shell(self) -> str:
        """Return what a reader types into a shell; nothing of other blocks."""
        return self.text if self.language in ("sh", "bash", "console") else ""


def blocks(page: Path) -> list[Block]:
    """All fenced blocks, in the order of the page."""
    parts = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [Block(language, re.sub(f"^{indent}", "", text, flags=re.MULTILINE)) for indent, language, text in parts]


def printed_as_shown(printed: str, shown: str) -> bool:
    """Whether a program printed what the page shows; `…` stands for anything, on a line of its own for any lines."""
    return re.fullmatch(".*".join(re.escape(part) for part in shown.strip().split("…")), printed.strip(), re.DOTALL) is not None


def retry_commands(text: str) -> list[list[str]]:
    """The `retry …` commands of a block for the shell, without variables before them, redirections and comments."""
    plain = re.sub(r"(?m)(?<!\S)#.*$|\s\d?>{1,2}\s?(?:&\d|\S+)", "", text.replace("\\\n", " "))
    tokens = shlex.shlex(plain, posix=True, punctuation_chars=_BETWEEN)
    tokens.whitespace, tokens.whitespace_split, tokens.commenters = " \t", True, ""
    commands: list[list[str]] = [[]]
    for token in tokens:
        if set(token) <= set(_BETWEEN):
            commands.append([])
        elif commands[-1] or not _VARIABLE.match(token):
            commands[-1].append(token)
    return [command[1:] for command in commands if command[:1] == ["retry"]]
