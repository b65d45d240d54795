"""What several tests of MindSpore use."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def blocking() -> None:
    """Kernels are waited for where they are launched."""
    import mindspore

    mindspore.runtime.launch_blocking()


@pytest.fixture(scope="session")
def whole(blocking: None, tmp_path_factory: pytest.TempPathFactory) -> object:
    """One step of the net at level mix, with tensors."""
    from ms_net import Net, batch, training
    from ms_recording import recording

    with recording(tmp_path_factory.mktemp("mix") / "run", task="tensor", level="mix") as found:
        net = Net()
        net.set_train()
        step = training(net)
        found.start(net)
        step(*batch(0))
        found.stop()
        found.step()
    return found
