"""The data of pickles in checkpoints."""

from __future__ import annotations

import pickle
from typing import Any

from probe_check.checkpoint.checkpoint_pickle import OpaqueObject, interpret_checkpoint


class Built:
    """An object whose class is called with keywords when it is read."""

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (1, "two"), {"three": 3}


def test_an_object_built_with_keywords_is_opaque() -> None:
    value, _ = interpret_checkpoint(pickle.dumps(Built(), protocol=4))
    assert isinstance(value, OpaqueObject)
    assert (value.kind.name, value.arguments) == ("Built", (1, "two"))
