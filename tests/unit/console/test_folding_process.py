"""The process that folds, as the console has it: what it says is shown, whatever happens to it, and it ends with the console."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from retry import clock
from retry.console.folding import folding_process
from retry.console.folding.folding_process import FoldingProcess
from retry.console.folding.reports import Begin, Place, Report, decode_begin, encode_begin
from retry.kafka import topics
from retry.policies.registry import Registry
from retry.process.policy_reload import load_policies
from retry.settings import Settings
from tests.support.process import await_that
from tests.unit.kafka.test_child_process import alive

NOW_MS = 1_790_000_000_000
OWN = topics.build_topic_names("retry")
# Says that a file is live, and the next one that it does not know yet; of a corrupt file, that there is another one.
SAYS = f"""
import sys
from multiprocessing.connection import Connection
from retry.console.folding.reports import Place, Report, decode_begin, encode_report
pipe = Connection(int(sys.argv[1]))
begin = decode_begin(pipe.recv_bytes())
again = begin.path.with_name("again")
places = [Place("{OWN.changelog}", 1, 0, 7, 9), Place("{OWN.changelog}", 0, 0, 5, 5), Place("{OWN.audit}", 0, 0, 2, 2)]
report = Report("second" if begin.corrupt else "first", 1, 17, 1e12, places=places, retention_ms={{"t": 1}})
if again.exists() and not begin.corrupt:
    report = Report(trouble="another one folds", is_stopped=True)
again.touch()
pipe.send_bytes(encode_report(report))
sys.exit(pipe.recv_bytes() != b"close")
"""


@pytest.fixture
def make_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], tuple[FoldingProcess, list[str]]]]:
    """Makes one that runs a program, or the real one, with what it lets pages show."""
    monkeypatch.setattr(folding_process, "_AGAIN_S", 0.01)
    given: list[FoldingProcess] = []

    def make(program: str, registry: Callable[[], Registry] = Registry) -> tuple[FoldingProcess, list[str]]:
        if program:
            (tmp_path / "says.py").write_text(program)
            monkeypatch.setattr(folding_process, "_PROGRAM", (sys.executable, str(tmp_path / "says.py")))
        shown: list[str] = []
        settings = Settings(policies=tmp_path / "policies.yaml")
        given.append(FoldingProcess(settings, tmp_path / "replica.sqlite", shown.append, registry))
        given[-1].start()
        return given[-1], shown

    yield make
    for each in given:
        each.close()


def pid(process: FoldingProcess) -> int:
    """Return the id of the process that runs, or ran last."""
    assert process._process is not None
    return process._process.pid


def test_it_is_told_all_settings_and_no_argument_has_them() -> None:
    settings = Settings(policies=Path("a/b.yaml"), kafka={"sasl.password": "secret"}, webhook_allow="10.0.0.0/8")
    begin = Begin(settings, Path("/data/replica.sqlite"), "f00d")
    assert decode_begin(encode_begin(begin)) == begin


def test_what_it_says_is_shown_and_a_corrupt_file_is_not_gone_on_with_even_if_it_dies_meanwhile(
    make_process: Callable[[str], tuple[FoldingProcess, list[str]]], caplog: pytest.LogCaptureFixture
) -> None:
    process, shown = make_process(SAYS)
    await_that("a file is shown", lambda: process.freshness().state == "catching_up")
    assert shown == ["first"]
    assert (process.report.as_of_ms, process.report.retention_ms, process.progress) == (17, {"t": 1}, 1.0)
    assert process.list_shard_positions() == [(0, 5, 5), (1, 7, 9)]
    assert process.freshness().lag_records == 2
    assert process.has_folded(OWN.changelog, 1, 6, 0.0)
    assert not process.has_folded(OWN.changelog, 1, 7, 0.0)
    os.kill(pid(process), signal.SIGKILL)
    await_that("the next one waits", lambda: process.freshness().trouble == "another one folds")
    assert "the process that folds has ended with -9, and is started again" in caplog.text
    assert (process.freshness().state, process.report.as_of_ms, shown[-1]) == ("old", 17, "first"), "what was known stays known"
    before = process.generation
    process.report_corrupt("first")
    await_that("another file is shown", lambda: process.freshness().state == "catching_up")
    assert "the process that folds has ended with 1, and is started again" in caplog.text
    assert [each for n, each in enumerate(shown) if shown[:n][-1:] != [each]] == ["first", "", "second"]
    assert process.generation > before


@pytest.mark.parametrize(("as_of_ms", "left", "state"), [
    (None, 1, "catching_up"), (NOW_MS - 2_001, 1, "catching_up"), (NOW_MS - 2_000, 1, "live"), (NOW_MS - 7_000, 0, "live"),
    # It has all up to ends that were told long ago, however lately a record came.
    (NOW_MS - 7_001, 0, "old"), (None, 0, "live"),
])  # fmt: skip
def test_only_who_has_all_or_had_it_a_moment_ago_is_live(
    as_of_ms: int | None, left: int, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "wall_ms", lambda: NOW_MS)
    process = FoldingProcess(Settings(policies=tmp_path / "policies.yaml"), tmp_path / "replica.sqlite", lambda _: None)
    places = [Place(OWN.changelog, 0, 0, 100 - left, 100)]
    process._accept_report(Report("file", 1, as_of_ms, clock.monotonic_s(), places=places))
    found = process.freshness()
    assert (found.state, found.lag_records) == (state, left)
    assert found.trouble == ("brokers have not said for 7 s where their topics end" if state == "old" else "")


@pytest.mark.parametrize(("silent_s", "left", "state"), [(4, 0, "live"), (6, 0, "old"), (6, 1, "catching_up"), (16, 1, "old")])
def test_who_hears_nothing_of_brokers_is_not_live(silent_s: int, left: int, state: str, tmp_path: Path) -> None:
    process = FoldingProcess(Settings(policies=tmp_path / "policies.yaml"), tmp_path / "replica.sqlite", lambda _: None)
    places = [Place(OWN.changelog, 0, 0, 100 - left, 100)]
    as_of_ms = 17 if left else clock.wall_ms()
    process._accept_report(Report("file", 1, as_of_ms, clock.monotonic_s() - silent_s, places=places))
    found = process.freshness()
    assert (found.state, found.trouble) == (state, f"nothing was heard of brokers for {silent_s} s" if state == "old" else "")


def test_who_is_behind_says_for_how_long_by_how_fast_it_catches_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(clock, "monotonic_s", lambda: now_s)
    process = FoldingProcess(Settings(policies=tmp_path / "policies.yaml"), tmp_path / "replica.sqlite", lambda _: None)

    def remaining_ms(left: int) -> int | None:
        places = [Place(OWN.changelog, 0, 0, 100_000 - left, 100_000)]
        process._accept_report(Report("file", 1, None, now_s, places=places))
        return process.freshness().remaining_ms

    assert remaining_ms(98_000) is None
    now_s += 2
    assert remaining_ms(90_000) == 22_500
    now_s += 1
    assert remaining_ms(88_000) == 22_500, "told for a while, so that it does not jump"
    now_s += 1
    assert remaining_ms(92_000) is None, "it falls further behind"
    now_s += 2
    assert (remaining_ms(0), process.freshness().state) == (None, "live")


def test_the_real_one_tells_what_is_in_its_way_is_started_again_and_ends_though_it_hangs(
    make_process: Callable[[str], tuple[FoldingProcess, list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    process, shown = make_process("")
    await_that("it has no policy file", lambda: "policies.yaml" in process.freshness().trouble)
    assert (process.freshness().state, process.progress, shown[-1]) == ("rebuilding", 0.0, "")
    first = pid(process)
    os.kill(first, signal.SIGTERM)
    (tmp_path / "policies.yaml").write_text("teams: 17")
    await_that("it goes on, and sees another fault", lambda: "teams" in process.freshness().trouble)
    assert pid(process) == first, "who stops the console stops it"

    os.kill(first, signal.SIGKILL)
    await_that("another one runs", lambda: pid(process) != first)
    assert "the process that folds has ended with -9, and is started again" in caplog.text
    await_that("it says the same", lambda: process.freshness().trouble.startswith(str(tmp_path)))

    monkeypatch.setattr(folding_process, "_END_S", 0.1)
    second = pid(process)
    os.kill(second, signal.SIGSTOP)
    process.close()
    assert not alive(second)


def test_it_does_not_begin_with_an_emptied_file_while_the_console_goes_by_one_with_teams(
    make_process: Callable[..., tuple[FoldingProcess, list[str]]], tmp_path: Path
) -> None:
    (tmp_path / "full.yaml").write_text("teams: {shop: {topics: [{dead_letters: orders.DLT, retry_to: orders}]}}\n")
    (tmp_path / "policies.yaml").write_text("teams: {}\n")
    in_use = load_policies(Settings(policies=tmp_path / "full.yaml"))
    process, _ = make_process("", lambda: in_use)
    await_that("it says why not", lambda: "has no team and no task" in process.freshness().trouble)
    assert "the one that the console uses has some" in process.freshness().trouble


def test_one_that_cannot_be_started_is_tried_again(
    make_process: Callable[[str], tuple[FoldingProcess, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_start(*_: object, **__: object) -> None:
        raise OSError(11, "no more processes")

    with monkeypatch.context() as full:
        full.setattr(folding_process, "Tethered", refuse_start)
        process, _ = make_process(SAYS)
        await_that("that is told", lambda: "no more processes" in process.freshness().trouble)
    await_that("it runs", lambda: process.freshness().state == "catching_up")
    assert process.freshness().trouble == ""
