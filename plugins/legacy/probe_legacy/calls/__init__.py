"""The calls of ptdbg_ascend and torch_npu.hooks, answered by probe's own recorder."""

from importlib.util import find_spec

if find_spec("probe_pytorch") is None:
    raise ImportError(
        "The calls of the older tools record with probe-pytorch, which is not installed: "
        'pip install "probe-legacy[calls]"'
    )
