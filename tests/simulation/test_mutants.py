"""The simulation checked: with one rule of the protocol switched off it must fail, within a few hundred runs as a rule.

`tests.integration.test_scan_mutant` has one more, which needs a real table.
"""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.pool import run_all
from tests.support.sizes import only_in_faults

pytestmark = pytest.mark.check

SEEDS = 3_000
# What a patch dies of whose product has changed.
_MISFITS = "died: TypeError", "died: AttributeError", "died: NameError"
# Rare ones begin a little before the seed that missed them last, which spares a minute each.
BEGINS = {
    "sealed-unbound": 380, "held-untold": 4_150, "returned-onto-another": 7_030, "erased-returned": 4_890,
    "edit-unseen": 840, "moved-unseen": 1_000, "exploded-by-two": 4_800, "nulls-end-first": 290, "stale-tables": 500,
    "moved-onto-another": 510, "runs-told-late": 390, "folded-is-current": 4_150,
}  # fmt: skip
# These take longest to be missed, a minute and a half at most.
_RARE = {
    "any-topic", "returned-onto-another", "moved-onto-another", "superseded-later", "returned-edit-unseen", "moved-unseen",
    "edit-unseen", "versions-unkept", "no-wait-for-end", "runs-told-late", "nulls-end-first", "folded-is-current",
}  # fmt: skip
EACH_MUTANT = [*(mutant for mutant in MUTANTS if mutant not in _RARE), *only_in_faults(*sorted(_RARE))]


@pytest.mark.parametrize("mutant", EACH_MUTANT)
def test_a_rule_that_is_switched_off_is_missed(mutant: str) -> None:
    total = run_all(BEGINS.get(mutant, 0), SEEDS, mutant, stop_early=True, processes=1)
    print(f"{mutant}: {total.describe()}: {next(iter(total.problems.items()), None)}")
    assert total.problems, f"{SEEDS} runs without it kept every promise"
    misfit = [why for why in total.problems.values() if why.startswith(_MISFITS)]
    assert not misfit, f"the mutant does not fit the product: {misfit[0]}"
