"""Decoders of the user's own: run only where settings name them, in a process of their own, bounded in time and size."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

from retry.console.reading.decoders import Decoders
from retry.console.web.rights import Role, Viewer
from retry.errors import SettingsInvalid
from retry.process import limited_program
from retry.settings import Settings
from tests.support.acting_console import ActingConsole
from tests.support.console import letter, record

ANN = Viewer("ann", {"shop": Role.OPERATOR}, frozenset({"shop"}))
MODULE = """
    import os, time
    def plain(topic, value):
        print("a word of its own")
        return f"{topic}: {value.hex()} <b> {os.environ.get('RETRY_SECRET')}"
    def as_json(topic, value):
        return b'{"n": 1}'
    def hangs(topic, value):
        time.sleep(60)
    def fails(topic, value):
        raise ValueError("not ours \\x1b[2J")
    def grows(topic, value):
        return bytearray(4 << 30)
    def long(topic, value):
        return "x" * (3 << 20)
    def dies(topic, value):
        os.kill(os.getpid(), 9)
"""
NAMES = ("plain", "as_json", "hangs", "fails", "grows", "long", "dies")


@pytest.fixture(autouse=True)
def installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that brings decoders along."""
    (tmp_path / "acme_decoders.py").write_text(textwrap.dedent(MODULE))
    about = tmp_path / "acme-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    lines = "\n".join(f"{name} = acme_decoders:{name}" for name in NAMES)
    (about / "entry_points.txt").write_text(f"[retry.decoders]\n{lines}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH", "")))))
    monkeypatch.setenv("RETRY_SECRET", "hidden")


def test_a_decoder_runs_for_the_topics_that_name_it_and_knows_no_secret() -> None:
    found = Decoders("other.*=as_json, orders.*=plain")
    decoded = found.decode("orders.DLT", b"\x01\xff")
    assert decoded is not None
    assert (decoded.name, decoded.text, decoded.fault) == ("plain", "orders.DLT: 01ff <b> None", "")
    assert found.decode("payments.DLT", b"\x01") is None
    assert Decoders("").decode("orders.DLT", b"\x01") is None


@pytest.mark.parametrize(
    ("name", "fault"),
    [("hangs", "took longer than 1 s"), ("fails", "ValueError: not ours"), ("grows", "MemoryError"), ("dies", "ended with -9")],
)
def test_a_decoder_that_does_not_come_back_is_a_sentence(name: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_program, "_WITHIN_S", 1.0 if name == "hangs" else 30.0)
    decoded = Decoders(f"*={name}").decode("orders.DLT", b"x")
    assert decoded is not None
    assert (decoded.text, fault in decoded.fault) == ("", True), decoded


def test_neither_a_value_nor_a_text_is_larger_than_a_page_takes() -> None:
    decoded = Decoders("*=long").decode("orders.DLT", b"x")
    assert decoded is not None
    assert len(decoded.text) == 1 << 20
    too_large = Decoders("*=plain").decode("orders.DLT", b"x" * ((1 << 20) + 1))
    assert too_large is not None
    assert "larger than" in too_large.fault


def test_a_name_that_no_package_has_ends_the_start() -> None:
    with pytest.raises(SettingsInvalid, match="no package that is installed has a decoder 'nix'"):
        Decoders("*=nix")
    for text in ("orders", "=plain", "orders=", "a=b=c"):
        with pytest.raises(SettingsInvalid, match="RETRY_CONSOLE_DECODERS"):
            Settings(console_decoders=text)
    assert Settings(console_decoders="a.*=plain, b=as_json").console_decoders


@pytest.mark.parametrize(
    ("name", "shown"), [("plain", "78 &lt;b&gt; None"), ("as_json", "&#34;n&#34;: 1"), ("fails", "not ours \\x1b[2J")]
)
def test_the_page_of_a_letter_shows_what_a_decoder_makes_of_it(name: str, shown: str) -> None:
    console = ActingConsole()
    try:
        console.replica.rows = [letter(1, "shop")]
        console.replica.payloads.records = {"parked/0/1": record("parked/0/1", b"x")}
        console.console.__dict__["decoders"] = Decoders(f"orders.*={name}")
        page = console.ask(ANN, "POST", "/letters/parked/0/1/reveal")
        assert (page.status_code, shown in page.text) == (200, True)
        assert (f"<summary>{name}</summary>" in page.text) == (name != "fails")
    finally:
        console.close()
