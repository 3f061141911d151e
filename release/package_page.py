"""Makes the README such that its page on a package index has no dead links: an index has none of the repository's files.

A link to a file of the repository leads to where the release's tag is browsed, if that address is given; else its text alone
stays, and no picture.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

# A link or a picture whose target is neither an address nor an anchor of the same page.
_RELATIVE = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z][a-z+.-]*:|#)([^)\s]+)\)")


class AddressUnusable(ValueError):
    """The address of the repository is none that a browser can open."""


def write_package_page(tree: Path, tag: str, repository: str) -> None:
    """Write README.md and pyproject.toml of an exported tree anew, for a wheel of this tag.

    Args:
      repository: its address; files of a tag are below `blob/TAG` and `raw/TAG` there, as GitHub and GitLab have them. Empty if
        it is not known.

    Raises:
      AddressUnusable: it is no https address without a query.
    """
    parts = urlsplit(repository)
    if repository and (parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment):
        raise AddressUnusable(f"{repository!r} is no address of a repository: give URL=https://HOST/OWNER/NAME, or none")
    repository = repository.rstrip("/")
    page = tree / "README.md"
    page.write_text(make_links_absolute(page.read_text(), tag, repository))
    if repository:
        about = tree / "pyproject.toml"
        changes = f"{repository}/blob/{tag}/CHANGELOG.md"
        urls = f'\n[project.urls]\nRepository = "{repository}"\nDocumentation = "{repository}/blob/{tag}/docs/index.md"\n'
        about.write_text(f'{about.read_text()}{urls}Changelog = "{changes}"\n')


def make_links_absolute(text: str, tag: str, repository: str) -> str:
    """Return Markdown in which no link and no picture is relative.

    >>> make_links_absolute("See [how](docs/how.md#a), [it](#it). ![A](a.png)", "v1.0.0", "https://git.example/o/n")
    'See [how](https://git.example/o/n/blob/v1.0.0/docs/how.md#a), [it](#it). ![A](https://git.example/o/n/raw/v1.0.0/a.png)'
    >>> make_links_absolute("See [how](docs/how.md#a), [it](#it). ![A](a.png)", "v1.0.0", "")
    'See how, [it](#it). '
    """

    def replace_link(found: re.Match[str]) -> str:
        picture, shown, target = found.groups()
        if not repository:
            return "" if picture else shown
        return f"{picture}[{shown}]({repository}/{'raw' if picture else 'blob'}/{tag}/{target})"

    return _RELATIVE.sub(replace_link, text)
