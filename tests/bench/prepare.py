"""Policy file and topics of a benchmark: `prepare.py <policy file> <dead-letter topic> <retry topic> [<team>=<topic>]...`.

A dead-letter topic may be a pattern as the policy file has it. More teams retry to the same topic, by the default policy.
Modules are compiled, as they are where the package is installed: with PYTHONDONTWRITEBYTECODE each start would compile them.
"""

import compileall
import os
import subprocess
import sys
from pathlib import Path

POLICY = """\
defaults:
  backoff: {{kind: exponential, delay: 1s, factor: 2, max_delay: 1d}}
  jitter: none
teams:
  bench:
    topics:
      - dead_letters: {dead_letters}
        retry_to: {retry_to}
        rules:
          - {{exception: '*.ValidationException', park: true}}
          - {{exception: '*.SerializationException', park: true}}
          - {{exception: '*Timeout*', backoff: {{kind: constant, delay: 2s, max_delay: 1d}}}}
"""


TEAM = "  {team}: {{topics: [{{dead_letters: {dead_letters}, retry_to: {retry_to}}}]}}\n"


ROOT = Path(__file__).parents[2]


def main(file: str, dead_letters: str, retry_to: str, *more: str) -> None:
    teams = (TEAM.format(team=team, dead_letters=topic, retry_to=retry_to) for team, _, topic in (m.partition("=") for m in more))
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(POLICY.format(dead_letters=dead_letters, retry_to=retry_to) + "".join(teams))
    for package in ("backoff", "retry"):
        compileall.compile_dir(ROOT / package, quiet=1)
    create = [sys.executable, "-m", "retry", "topics", "create"]
    subprocess.run(create, check=True, env={**os.environ, "RETRY_POLICIES": file})


if __name__ == "__main__":
    main(*sys.argv[1:])
