"""Whether a change costs something: `python -m tests.bench.compare --rev COMMIT`, this tree against another commit.

The machine's speed drifts by more than a change costs. So both are measured in turn, a pair at a time, each one first in
every second pair, and what counts is the median of the pairs' ratios. Each tree brings its own `tests.bench`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.support.process import ROOT
from tests.support.revisions import extract_revision

from .figures import number

# What grows when the service gets better; the ratio of all others is turned round, so that above 1 is always better.
_RATES = "/s"
_RUN_S = 1_200


class Ratio(NamedTuple):
    """One figure of both trees, pair by pair; a ratio above 1 says that this tree is better."""

    figure: str
    unit: str
    before: list[float]
    now: list[float]

    @property
    def ratios(self) -> list[float]:
        """List the ratio of each pair."""
        pairs = zip(self.before, self.now, strict=True)
        return [now / before if self.unit.endswith(_RATES) else before / now for before, now in pairs]


def main() -> int:
    """Measure in turn and print a table; 1 if a figure's median ratio is below `--least`."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="retry-compare-") as folder:
        trees = {"before": extract_revision(arguments.rev, Path(folder) / "before"), "now": ROOT}
        runs: dict[str, list[dict[str, tuple[float, str]]]] = {"before": [], "now": []}
        for pair in range(arguments.pairs):
            for name in ("before", "now") if pair % 2 == 0 else ("now", "before"):
                runs[name].append(figures_of(trees[name], arguments.only, arguments.letters))
            print(f"pair {pair + 1} of {arguments.pairs} done", file=sys.stderr, flush=True)
    lines = ratios(runs["before"], runs["now"])
    print(table(lines))
    return int(any(median(line.ratios) < arguments.least for line in lines))


def figures_of(tree: Path, only: str, letters: int) -> dict[str, tuple[float, str]]:
    """One run of a tree's own bench: value and unit of each figure, by name."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, "-m", "tests.bench", "--only", only, "--letters", str(letters), "--json", file.name]
        subprocess.run(command, cwd=tree, check=True, stdout=subprocess.DEVNULL, timeout=_RUN_S)
        return {line["figure"]: (line["value"], line["unit"]) for line in json.loads(Path(file.name).read_text())["figures"]}


def ratios(before: Sequence[dict[str, tuple[float, str]]], now: Sequence[dict[str, tuple[float, str]]]) -> list[Ratio]:
    """A line for each figure that every run of both trees has, and that is not zero."""
    common = [name for name in now[0] if all(name in run and run[name][0] > 0 for run in [*before, *now])]
    return [Ratio(name, now[0][name][1], [run[name][0] for run in before], [run[name][0] for run in now]) for name in common]


def table(lines: Sequence[Ratio]) -> str:
    """The lines as Markdown: medians, and the ratios of the pairs."""
    rows = ["| figure | unit | before | now | ratio, above 1 is better | of each pair |", "|---|---|---|---|---|---|"]
    for line in lines:
        pairs = ", ".join(f"{ratio:.2f}" for ratio in line.ratios)
        medians = f"{number(median(line.before))} | {number(median(line.now))} | {median(line.ratios):.2f}"
        rows.append(f"| {line.figure} | {line.unit} | {medians} | {pairs} |")
    return "\n".join(rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.compare", description="This tree against a commit, in pairs.")
    parser.add_argument("--rev", required=True, help="the commit to compare with")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--only", default="intake,spring,sweep", help="figures of tests.bench")
    parser.add_argument("--letters", type=int, default=100_000)
    parser.add_argument("--least", type=float, default=0.0, help="the ratio below which the exit code is 1")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
