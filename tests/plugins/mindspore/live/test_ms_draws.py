"""The rules of ``draws.yaml`` against what the operators of this MindSpore do on a CPU."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

import mindspore.ops.operations as P  # noqa: E402
from mindspore import Tensor, ops  # noqa: E402
from mindspore.ops.operations import _inner_ops  # noqa: E402
from probe_mindspore.capture.random_primitives import PrimitiveSeeds, find_seeds  # noqa: E402

ms.runtime.launch_blocking()
X = Tensor(np.ones((40, 3), np.float32))
SHAPE = Tensor(np.array([60], np.int32))
MANY = Tensor(np.array([50.0], np.float32))

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "Dropout": (lambda a, b: ops.Dropout(0.5, a, b), (X,)),
    "StandardNormal": (ops.StandardNormal, ((60,),)),
    "StandardLaplace": (ops.StandardLaplace, ((60,),)),
    "UniformReal": (ops.UniformReal, ((60,),)),
    "UniformInt": (ops.UniformInt, ((60,), Tensor(0, ms.int32), Tensor(999, ms.int32))),
    "Multinomial": (ops.Multinomial, (X[:, 0], 30)),
    "RandomShuffle": (P.RandomShuffle, (Tensor(np.arange(60.0)),)),
    "RandomPoisson": (lambda a, b: P.RandomPoisson(a, b, ms.float32), (SHAPE, MANY)),
    "RandomChoiceWithMask": (lambda a, b: ops.RandomChoiceWithMask(30, a, b), (X > 0,)),
}
"""Primitives that follow the rule: their constructors with two seeds, and inputs."""


def first_of(result: Any) -> bytes:
    found = result[0] if isinstance(result, tuple) else result
    return bytes(found.asnumpy().tobytes())


def repeated(construct: Callable[[], Any], inputs: tuple[Any, ...]) -> tuple[PrimitiveSeeds | None, bool]:
    """Return the seeds of a primitive, and True if two of the same seeds return the same numbers."""
    results = [first_of(construct()(*inputs)) for _ in range(2)]
    return find_seeds(construct(), inputs), results[0] == results[1]


@pytest.mark.parametrize("name", list(CASES))
def test_primitives_with_seeds_follow_the_rule(name: str) -> None:
    construct, inputs = CASES[name]
    seeding, is_same = repeated(lambda: construct(3, 4), inputs)
    assert seeding == PrimitiveSeeds(name, (3, 4), is_unseeded=False) and is_same
    seeding, is_same = repeated(lambda: construct(0, 0), inputs)
    assert seeding == PrimitiveSeeds(name, (0, 0), is_unseeded=True) and not is_same


EXCEPTIONS: dict[str, tuple[Callable[[], Any], tuple[Any, ...], PrimitiveSeeds]] = {
    "Bernoulli": (lambda: P.Bernoulli(-1), (X, Tensor(0.5)), PrimitiveSeeds("Bernoulli", (-1,), True)),
    "Bernoulli 3": (lambda: P.Bernoulli(3), (X, Tensor(0.5)), PrimitiveSeeds("Bernoulli", (3,), False)),
    "RandomCategorical": (lambda: P.RandomCategorical(), (X, 30, 0), PrimitiveSeeds("RandomCategorical", (0,), True)),
    "RandomCategorical 3": (
        lambda: P.RandomCategorical(), (X, 30, 3), PrimitiveSeeds("RandomCategorical", (3,), False)
    ),
    "LogNormalReverse": (lambda: P.LogNormalReverse(), (X,), PrimitiveSeeds("LogNormalReverse", (), True)),
    "RandpermV2": (
        lambda: ops.auto_generate.RandpermV2(0, 0), (60,), PrimitiveSeeds("RandpermV2", (0, 0), False)
    ),
    "LogUniformCandidateSampler": (
        lambda: ops.LogUniformCandidateSampler(1, 5, True, 500, 0), (Tensor([[1], [2]]),),
        PrimitiveSeeds("LogUniformCandidateSampler", (0,), False),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(EXCEPTIONS))
def test_exceptions_are_as_listed(name: str) -> None:
    construct, inputs, expected = EXCEPTIONS[name]
    seeding, is_same = repeated(construct, inputs)
    assert seeding == expected
    assert is_same is not expected.is_unseeded


@pytest.mark.parametrize("kind", [P.Dropout2D, P.Dropout3D])
def test_kernels_that_no_seed_reaches_draw(kind: Any) -> None:
    assert find_seeds(kind(0.5), (X,)) == PrimitiveSeeds(kind.__name__, (), False)


@pytest.mark.parametrize("primitive", [ops.MatMul(), ops.ReLU(), ops.BiasAdd()])
def test_other_primitives_draw_nothing(primitive: Any) -> None:
    assert find_seeds(primitive, (X, X)) is None


def test_all_constructors_with_seeds_are_known() -> None:
    waiting, seen = [ops.Primitive], set()
    while waiting:
        kind = waiting.pop()
        waiting += [child for child in kind.__subclasses__() if child not in seen]
        seen.add(kind)
    seeded: dict[str, set[str]] = {}
    for kind in seen - {_inner_ops.Generator}:
        names = {name for name in inspect.signature(kind.__init__).parameters if "seed" in name.lower()}
        if names:
            seeded[kind.__name__] = names
    assert len(seeded) >= 15
    assert set().union(*seeded.values()) <= {"Seed0", "Seed1", "seed", "seed2"}


def test_a_dropout_keeps_the_seeds_of_its_construction() -> None:
    from mindspore import nn

    ms.set_seed(5)
    layer = nn.Dropout(p=0.5)
    before = find_seeds(layer.dropout, (X,))
    ms.set_seed(6)
    assert find_seeds(layer.dropout, (X,)) == before == PrimitiveSeeds("Dropout", (5, 0), False)
