"""The receiver in a configuration and in --send-to: each field in its meaning, each mistake in one sentence."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from probe_recording.api import Config
from probe_recording.settings.config import parse
from probe_recording.settings.destination import (
    Destination,
    create_destination,
    is_loopback,
    parse_byte_count,
    replace_destination,
)

from probe_core.errors import UserError

LAN = {"online_run_ut": True, "host": "192.0.2.7", "port": 59208}


def parsed(section: dict[str, Any], **fields: Any) -> Config:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return parse({"dump_path": "dump", "task": "tensor", "tensor": section, **fields})


def refused(section: dict[str, Any], **fields: Any) -> str:
    with pytest.raises(UserError) as caught:
        parse({"dump_path": "dump", "task": "tensor", "tensor": section, **fields})
    return caught.value.what


def test_the_documented_configuration() -> None:
    section = {"scope": [], "list": [], **LAN, "nfs_path": "", "tls_path": ""}
    config = parsed(section, level="L1", rank=[0], step=[0], seed=1234, is_deterministic=True)
    assert config.online == Destination("192.0.2.7", 59208)
    assert config.online.is_exposed and config.online.memory == 1 << 30 and config.online.policy == "drop"
    assert config.directions == {"forward"} and not config.records_step_phases and not config.extra_info
    assert config.ranks == {0} and config.seed == 1234


def test_shared_storage_wins() -> None:
    online = parsed({**LAN, "port": -1, "nfs_path": "shared"}).online
    assert online is not None and online.shared == Path.cwd() / "shared" and not online.is_exposed
    assert (online.host, online.port) == ("", 0)


def test_sending_is_asked_for() -> None:
    assert parsed({"online_run_ut": False, "host": "", "port": -1, "nfs_path": ""}).online is None
    assert parsed({}).online is None


def test_limits() -> None:
    more = {"online_memory": "2GiB", "online_disk": 1 << 30, "online_policy": "WAIT", "online_wait": 5,
            "online_drain": 0.5}  # fmt: skip
    online = parsed({**LAN, **more}).online
    assert online is not None
    assert (online.memory, online.disk, online.policy, online.wait, online.drain) == (
        2 << 30,
        1 << 30,
        "wait",
        5,
        0.5,
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"host": ""}, '"host" is missing, and so is "nfs_path"'),
        ({"port": 0}, '"port" must be a whole number from 1 to 65535, not 0'),
        ({"port": 65536}, '"port"'),
        ({"port": "59208"}, '"port"'),
        ({"port": True}, '"port"'),
        ({"online_run_ut": "true"}, '"online_run_ut" must be true or false'),
        ({"online_memory": "much"}, '"online_memory" must be a size of at least 1 MiB'),
        ({"online_memory": 10}, '"online_memory"'),
        ({"online_policy": "die"}, '"online_policy"'),
        ({"online_wait": -1}, '"online_wait"'),
        ({"online_drain": "10"}, '"online_drain"'),
        ({"data_mode": ["input"]}, '"data_mode" leaves out a part of the forward calls'),
        ({"data_mode": ["backward"]}, '"data_mode" leaves out'),
    ],
)
def test_mistakes(fields: dict[str, Any], message: str) -> None:
    assert message in refused({**LAN, **fields})


def test_levels_that_are_not_sent() -> None:
    assert "not with task tensor at level L0" in refused(LAN, level="L0")


def test_the_option() -> None:
    assert create_destination("127.0.0.1:5") == Destination("127.0.0.1", 5)
    assert create_destination("[::1]:5").host == "::1" and str(create_destination("[::1]:5")) == "[::1]:5"
    assert create_destination("host:5", insecure=True).consented
    assert create_destination("localhost:5", memory="3MiB").memory == 3 << 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("192.0.2.7:59208", "in plain text"),
        ("there:5", "in plain text"),
        ("nowhere", "neither HOST:PORT nor an existing directory"),
        ("/nowhere/x:1", "neither HOST:PORT nor an existing directory"),
        (":5", "is no address"),
        ("127.0.0.1:0", "is no address"),
        ("127.0.0.1:99999", "is no address"),
    ],
)
def test_mistakes_in_the_option(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        create_destination(text)


def test_a_directory(tmp_path: Path) -> None:
    assert create_destination(str(tmp_path)).shared == tmp_path
    with pytest.raises(UserError, match="must be a size of at least 1 MiB"):
        create_destination(str(tmp_path), memory="5")


def test_settings_without_a_destination_stay_as_they_are() -> None:
    config = parsed({})
    assert replace_destination(config, None, "") is config
    assert replace_destination(config, Destination("::1", 1), "").directions == {"forward"}


def test_sizes_and_hosts() -> None:
    assert [parse_byte_count(text) for text in ("5", "1k", "2 MB", "1.5GiB", "1t")] == [
        5,
        1024,
        2 << 20,
        3 << 29,
        1 << 40,
    ]
    assert parse_byte_count("x") is parse_byte_count("") is None
    assert [is_loopback(host) for host in ("127.0.0.2", "::1", "localhost", "example", "0.0.0.0")] == [
        True, True, True, False, False,
    ]  # fmt: skip
