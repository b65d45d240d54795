"""Functions that are wrapped while a recording is under way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from support.runs.recording import recording  # noqa: E402


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    """A process group of gloo with this process alone."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("name", ["isend", "irecv"])
def test_operations_of_a_batch_are_the_originals(tmp_path: Path, name: str) -> None:
    """``batch_isend_irecv`` asks whether the operation of a ``P2POp`` is ``isend``."""
    distributed = torch.distributed
    original, initialize = getattr(distributed.distributed_c10d, name), distributed.P2POp.__init__
    with recording(tmp_path / "run", level="L1") as found:
        for _ in range(2):
            found.start()
            tensor = torch.ones(2)
            operations = [
                distributed.P2POp(getattr(distributed, name), tensor, 0),
                distributed.P2POp(op=getattr(distributed, name), tensor=tensor, peer=0),
            ]
            assert [operation.op is original for operation in operations] == [True, True]
            found.stop()
            found.step()
    assert distributed.P2POp.__init__ is initialize
