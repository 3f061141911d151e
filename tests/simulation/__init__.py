"""Workers of the real classes over a log in memory, stepped by a seed: every fault at every step, and nothing real waits.

    python -m tests.simulation --seed 4711 --trace

| module | what it is |
| --- | --- |
| `plan` | what a seed draws before it begins |
| `world` | time, the log, the workers, and who has the next step |
| `worker` | one worker, composed as `retry.worker.composition` does |
| `stepped` | log and tables as a worker reaches them, where it may crash, freeze or be overtaken before and after each call |
| `outside` | who writes letters, takes retries and gives orders |
| `faults` | what goes wrong between steps |
| `ledger` | what is promised, checked at each commit |
| `tables` | what is promised of tables |
| `run` | one seed from beginning to end |
| `pool` | many seeds in several processes |
| `mutants` | the product with one rule of its protocol switched off |
"""
