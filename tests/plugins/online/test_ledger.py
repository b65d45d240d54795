"""The ledger: what is judged, dropped and not known, over restarts; and the words that tell it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from probe_online import words
from probe_online.accounts import CallKey
from probe_online.ledger import Ledger
from probe_online.settings import ReceptionPlace, parse_host_and_port, parse_receiver_config, parse_receiver_options
from probe_precheck.api import Status

from probe_core.errors import UserError

FIRST = "probe: rank 1, step 2: Torch.mul.7 is the first of 2 calls in error; 3 calls were judged"


def judge(ledger: Ledger, rank: int, step: int, seq: int, name: str, status: Status, session: str = "s") -> None:
    key = CallKey(rank, session, step, name)
    assert ledger.begin(key) == "new"
    assert ledger.begin(key) == "working"
    if ledger.note_pending_verdict(key, seq, status, "too large"):
        ledger.write()
    ledger.record_verdict(key, status)
    ledger.settle(rank, session, seq)
    assert ledger.begin(key) == "done"


def test_the_first_error_is_that_of_the_training_and_not_that_which_came_first(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "online_20260101000000.json")
    ledger.greet(1, "s")
    judge(ledger, 1, 3, 40, "Torch.mul.0", Status.ERROR)
    judge(ledger, 1, 2, 39, "Torch.mul.7", Status.ERROR)
    judge(ledger, 1, 2, 38, "Torch.add.0", Status.PASS)
    ledger.complete(1, "s")
    assert words.format_verdict(ledger) == FIRST
    # a receiver that is killed now goes on with the same first error and the rows of its files
    again = Ledger(ledger.path)
    rows = [(CallKey(1, "s", 3, "Torch.mul.0"), Status.ERROR), (CallKey(1, "s", 2, "Torch.mul.7"), Status.ERROR),
            (CallKey(1, "s", 2, "Torch.add.0"), Status.PASS)]  # fmt: skip
    assert again.load(json.loads(ledger.path.read_text()), rows) == 3
    assert again.find_first_error() == ledger.find_first_error()
    again.tally(1, "s", {"Torch.mul": 2, "Torch.add": 3}, {"Torch.mul": 5}, ended=True)
    again.settle(1, "s", 39, earlier=True)  # it was sent again, and had its row before
    assert again.ranks[1].unknown == 2
    assert "5 calls were dropped by the training, 2 calls did not arrive" in words.format_verdict(again)
    assert not again.is_over(1e6) and again.is_over(-1)


def test_a_call_counts_once_however_often_it_is_sent(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "online.json")
    ledger.greet(0, "s")
    for seq in (3, 0, 0, 1, 3, 2, 2):
        ledger.settle(0, "s", seq)
    ledger.tally(0, "s", {"Torch.add": 6}, {}, ended=True)
    assert ledger.ranks[0].unknown == 2
    ledger.note_settled_elsewhere(0, "s", 2)
    assert "2 further calls went to other receivers" in words.format_verdict(ledger)
    assert ledger.ranks[0].unknown == 0 and ledger.is_over(600)


def test_a_rank_that_was_announced_is_waited_for_and_named(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "online_20260101000000.json", frozenset({0, 1}))
    ledger.greet(0, "s", [0, 1, 2])
    judge(ledger, 0, 0, 0, "Torch.add.0", Status.PASS)
    judge(ledger, 0, 0, 1, "Torch.rand.0", Status.SKIP)
    ledger.complete(0, "s")
    assert (
        not ledger.is_over(600)
        and ledger.list_absent_ranks() == [1]
        and "rank 1 never connected" in words.format_verdict(ledger)
    )
    assert "; 1 call was skipped (reasons in the result file)" in words.format_verdict(ledger)
    again = Ledger(ledger.path, frozenset({0, 1}))
    ledger.write()
    again.load(json.loads(ledger.path.read_text()), [])
    assert again.list_absent_ranks() == [1] and not again.is_over(600)
    ledger.greet(1, "t", [0, 1, 2])
    ledger.complete(1, "t")
    assert ledger.is_over(600) and words.describe_gaps(ledger) == []


def test_the_table_is_drawn_over_itself_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    ledger = Ledger(tmp_path / "online.json")
    ledger.greet(1, "s")
    judge(ledger, 1, 3, 40, "Torch.mul.\x1b[2J0", Status.ERROR)
    speaker = words.ReceptionPrinter(ReceptionPlace("127.0.0.1"))
    speaker.show(ledger)
    speaker.show(ledger)  # too early for another
    monkeypatch.setattr(words, "FRAME_INTERVAL_SECONDS", 0.0)
    speaker._next_print_time = 0.0
    speaker.show(ledger)
    printed = capsys.readouterr().err
    lines = printed.split("\x1b[3A\x1b[J")
    assert len(lines) == 2 and lines[0].count("\n") == lines[1].count("\n") == 3
    assert "rank 1    sending      error 1" in printed and "\x1b[2J" not in printed


@pytest.mark.parametrize(
    "values, says",
    [
        ({"listen": "127.0.0.1"}, "is no HOST:PORT"),
        ({"listen": "127.0.0.1:99999"}, "is no HOST:PORT"),
        ({"listen": "192.0.2.1:1"}, "plain text"),
        ({"listen": "localhost:1", "watch": "x"}, "exclude each other"),
        ({"watch": "x", "tls": "y"}, "has no effect with --watch"),
        ({"patience": "3"}, "without a place"),
        ({"listen": "localhost:1", "patience": "nan"}, "no number"),
        ({"listen": "localhost:1", "window": "100"}, "less than the largest call"),
    ],
)
def test_wrong_options_are_named(values: dict[str, str], says: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_receiver_options(values)
    assert says in caught.value.what


def test_the_configuration_of_the_guide() -> None:
    fields = {"is_online": True, "host": "192.0.2.1", "port": 6006, "rank_list": [0, 3], "tls_path": ""}
    order = parse_receiver_config(fields, "It", {})
    assert (order.place.host, order.place.port, order.ranks) == ("192.0.2.1", 6006, {0, 3})
    assert order.place.consent and order.place.tls is None
    assert parse_receiver_config({**fields, "nfs_path": "/x", "port": -1}, "It", {}).place.directory == Path("/x")
    for wrong in ({"port": 0}, {"port": "6006"}, {"host": ""}, {"rank_list": [-1]}, {"host": 3}):
        with pytest.raises(UserError):
            parse_receiver_config({**fields, **wrong}, "It", {})
    assert parse_host_and_port("[::1]:80", "--listen") == ("::1", 80)
