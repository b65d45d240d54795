"""Private API of MindSpore 2.10 that the recorder uses."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Parameter, Tensor, mint, nn, ops  # noqa: E402
from mindspore.ops.composite import base  # noqa: E402
from probe_mindspore import compat, compat_passes  # noqa: E402

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def seen(look: Any) -> Any:
    """Return the result of ``look``, called inside a function that is differentiated."""
    found: list[Any] = []
    weight = Parameter(Tensor(X), name="w")

    def f(x: Tensor) -> Tensor:
        parts = mint.chunk(x * weight, 3, 1)
        found.append(look(x, weight, parts))
        return parts[0].sum() + parts[2].sum()

    ms.grad(f, 0, [weight])(Tensor(X))
    return found[0]


def test_nodes_of_the_graph_2_10() -> None:
    assert compat.has_nodes()
    assert compat.get_node(Tensor(X)) is None and compat.get_node(Tensor(X) * 2) is None  # nobody asks for it

    def look(x: Tensor, weight: Parameter, parts: Any) -> Any:
        nodes = [compat.get_node(part) for part in parts]
        assert len({compat.get_identity(node) for node in nodes}) == 1
        assert [compat.get_output_index(part) for part in parts] == [0, 1, 2]
        ((product, place),) = [edge for edge in compat.list_edges(nodes[0]) if edge[0] is not None]
        assert place == 0 and compat.get_node_number(nodes[0]) > compat.get_node_number(product) > 0
        ends = [compat.get_identity(node) for node, _ in compat.list_edges(product)]
        assert ends == [compat.get_identity(compat.get_node(x)), compat.get_identity(compat.get_node(weight))]
        assert compat.get_node_number(compat.get_node(x)) == compat.get_node_number(compat.get_node(weight)) == 0
        return True

    assert seen(look)


def test_hooks_of_nodes_2_10() -> None:
    calls: list[Any] = []

    def look(x: Tensor, weight: Parameter, parts: Any) -> None:
        node = compat.get_node(parts[0])
        node.register_prehook(lambda gradients: calls.append([g is None for g in gradients]))
        node.register_hook(lambda out, into: calls.append([out[0].asnumpy().tolist(), len(into)]))

    seen(look)
    assert calls == [[False, True, False], [[[1, 0, 1], [1, 0, 1]], 3]]


def test_no_grad_2_10() -> None:
    def look(x: Tensor, *_: Any) -> bool:
        with compat.disable_gradients():
            return compat.get_node(x * 2) is None and compat.get_node(x) is not None

    assert seen(look)


def test_primitives_2_10() -> None:
    classes = compat.list_primitive_classes()
    assert len(classes) > 1000 and ops.Primitive in classes and len(set(classes)) == len(classes)
    layer = nn.Conv2d(3, 4, 3)
    assert list(compat.list_primitives(layer)) == ["conv2d", "bias_add"]
    assert compat.get_primitive_name(layer.conv2d) == "Conv2D"


def test_waiting_raises_what_went_wrong_2_10() -> None:
    with pytest.raises(RuntimeError, match="LinalgVectorNorm"):
        compat.wait_for([mint.norm(Tensor(X))])


def test_eager_leaves_things_as_they_were_2_10(monkeypatch: pytest.MonkeyPatch) -> None:
    for before in (None, "1"):
        if before is None:
            monkeypatch.delenv("MS_JIT", raising=False)
        else:
            monkeypatch.setenv("MS_JIT", before)
        stood = base._Vmap.__call__
        eager = compat.EagerSwitch(lambda: lambda: None)
        eager.install()
        eager.install()
        assert os.environ["MS_JIT"] == "0" and base._Vmap.__call__ is not stood
        eager.remove()
        eager.remove()
        assert os.environ.get("MS_JIT") == before and base._Vmap.__call__ is stood


def test_seeds_of_operators_2_10() -> None:
    ms.set_seed(5)
    assert compat.list_operator_seeds() == []
    ops.standard_normal((2,))
    assert [entry[:2] for entry in compat.list_operator_seeds()] == [("standard_normal", 0)]
    attributes = compat.read_attributes(nn.Dropout(p=0.5).dropout)
    assert {name: attributes[name] for name in ("Seed0", "Seed1")} == {"Seed0": 5, "Seed1": 0}


def test_steps_of_generators_2_10(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Any] = []
    kind = compat.GeneratorOp
    original = kind.__call__

    def call(primitive: Any, *args: Any) -> Any:
        steps.append(compat.find_generator_step(primitive, args))
        return original(primitive, *args)

    monkeypatch.setattr(kind, "__call__", call)
    ms.manual_seed(7)
    with pytest.raises(RuntimeError):
        mint.rand(3).asnumpy()  # the state advances, although a CPU has no kernel for the numbers
    given = ms.Generator().manual_seed(8)
    given._step(Tensor(12, ms.int64))
    first, second = [step for step in steps if step is not None]
    assert (first.is_default, first.seed(), second.is_default, second.seed()) == (True, 7, False, 8)
    assert first.state() == ms.get_rng_state().asnumpy().tobytes()


def test_level_of_mixed_precision_2_10() -> None:
    net = nn.SequentialCell(nn.Dense(3, 3))
    assert compat.get_amp_level(net) == ""
    assert compat.get_amp_level(ms.amp.auto_mixed_precision(net, "O2")) == "O2"


def test_differentiation_2_10() -> None:
    def look(x: Tensor, weight: Parameter, parts: Any) -> bool:
        with compat.disable_gradients():
            assert not compat.is_differentiating()
        return compat.is_differentiating()

    assert seen(look) and not compat.is_differentiating()


def test_backward_passes_2_10(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compat_passes.shows_passes()
    original = getattr(compat_passes.passes, compat_passes.BACKWARD)
    found: list[Any] = []

    def backward(*args: Any) -> Any:
        result = original(*args)
        given = compat_passes.Pass(args)
        found.append((given.has_aux, given.may_be_scaled, [name for name, _ in given.gradients(result)]))
        return result

    monkeypatch.setattr(compat_passes.passes, compat_passes.BACKWARD, backward)
    weights = [Parameter(Tensor(X), name=name) for name in ("a", "b")]
    several, single = ms.ParameterTuple(weights), weights[0]

    def loss(x: Tensor) -> Tensor:
        return (x * weights[0] * weights[1]).sum()

    x, one = Tensor(X), Tensor(1.0, ms.float32)
    ms.value_and_grad(loss, None, several)(x)
    ms.value_and_grad(loss, 0, single)(x)
    ms.value_and_grad(lambda x: (loss(x), x), 0, several, has_aux=True)(x)
    ms.grad(loss, None, single)(x)
    ms.grad(loss)(x)
    ms.grad(loss, None, several, return_ids=True)(x)
    ops.GradOperation(get_by_list=True)(loss, several)(x)
    ops.GradOperation(get_all=True, get_by_list=True, sens_param=True)(loss, several)(x, one)
    assert found == [
        (False, False, ["a", "b"]), (False, False, ["a"]), (True, False, ["a", "b"]), (False, False, ["a"]),
        (False, False, []), (False, False, ["a", "b"]), (False, False, ["a", "b"]), (False, True, ["a", "b"]),
    ]  # fmt: skip
