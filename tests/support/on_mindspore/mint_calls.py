"""Calls of mint and mint.nn.functional that run on a CPU with MindSpore 2.10.0."""

from __future__ import annotations

from typing import Any, NamedTuple

from support.on_mindspore.mint_record import D, T, V


class Call(NamedTuple):
    """An API with the arguments of a call."""

    api: str
    positional: tuple[Any, ...]
    keywords: dict[str, Any]
    backward: bool = True


def call(api: str, *positional: Any, backward: bool = True, **keywords: Any) -> Call:
    """Return a call of mint, or of mint.nn.functional for a name that begins with ``F.``."""
    scope, _, name = api.rpartition("/")
    return Call(f"{'MintFunctional' if scope == 'F' else 'Mint'}.{name}", positional, keywords, backward)


X, Y = T(5, 7), T(5, 7, seed=1)
POSITIVE = T(5, 7, low=0.1, high=3.0)
INNER = T(5, 7, low=-0.9, high=0.9)
INTEGERS, MORE = T(5, 7, low=-9, high=9, dtype="Int64"), T(5, 7, low=1, high=9, dtype="Int64", seed=2)
TRUTH, OTHER = T(5, 7, dtype="Bool"), T(5, 7, dtype="Bool", seed=3)
IMAGE = T(2, 3, 6, 6)
INDEX = V([[0, 2, 1], [3, 4, 0]], "Int64")

CALLS = [
    *(call(api, X) for api in (
        "abs", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "neg", "negative", "round", "sigmoid",
        "sign", "sin", "sinc", "sinh", "square", "tanh", "trunc", "fix", "isfinite", "isinf", "isnan",
        "ravel", "nan_to_num", "t", "real")),
    *(call(api, POSITIVE) for api in ("reciprocal", "log", "log1p", "rsqrt", "sqrt")),
    *(call(api, INNER) for api in ("atanh", "arctanh", "erfinv", "tan")),
    *(call(api, X, Y) for api in (
        "add", "sub", "mul", "maximum", "minimum", "eq", "ne", "not_equal", "gt", "greater", "ge",
        "greater_equal", "lt", "less", "le", "less_equal", "allclose", "isclose")),
    *(call(api, TRUTH, OTHER) for api in ("logical_and", "logical_or", "logical_xor")),
    *(call(api, X, POSITIVE) for api in ("div", "divide", "floor_divide", "fmod", "remainder", "xlogy")),
    *(call(api, POSITIVE, X) for api in ("pow", "float_power")),
    call("pow", POSITIVE, 2.5), call("pow", X, 2), call("add", X, 1.5), call("sub", X, Y, alpha=2),
    call("add", X, Y, alpha=2), call("add", X, other=Y), call("mul", X, 0.1), call("div", X, 3.0),
    call("add", X, T(7)), call("mul", X, T(5, 1)), call("sub", X, T(1, 7)), call("div", X, T(7, low=0.5, high=2)),
    call("maximum", X, T(7)), call("mul", INTEGERS, MORE), call("add", INTEGERS, MORE),
    call("logical_not", TRUTH), call("bitwise_and", INTEGERS, MORE), call("gcd", INTEGERS, MORE),
    call("all", TRUTH), call("all", TRUTH, 1), call("any", TRUTH), call("any", TRUTH, 1, True),
    call("sum", X), call("sum", X, 1), call("sum", X, dim=0, keepdim=True), call("sum", X, dtype=D("Float64"), backward=False),
    call("mean", X), call("mean", X, 1), call("prod", INNER), call("prod", X, 1),
    call("max", X), call("max", X, 1), call("min", X), call("min", X, 1),
    call("nansum", X), call("amax", X, 1), call("amin", X, 1), call("cumprod", INNER, 1),
    call("cummax", X, 1, backward=False), call("diff", X), call("unique_consecutive", INTEGERS), call("nonzero", TRUTH),
    call("searchsorted", V([[1.0, 2.0, 3.0, 5.0]]), V([[0.5, 2.5, 9.0]])),
    call("matmul", X, T(7, 4)), call("matmul", T(2, 3, 4, 5), T(2, 3, 5, 4)), call("matmul", T(2, 3, 4, 5), T(5, 6)),
    call("matmul", X, T(7)), call("bmm", T(3, 4, 5), T(3, 5, 6)), call("lerp", X, Y, 0.3), call("lerp", X, Y, INNER),
    call("cross", T(4, 3), T(4, 3, seed=1), 1), call("cdist", T(4, 3), T(5, 3, seed=1)),
    call("broadcast_to", T(1, 7), (5, 7)), call("cat", (X, Y)), call("cat", (X, Y), 1), call("concat", (X, Y), dim=0),
    call("hstack", (X, Y)), call("dstack", (X, Y)), call("chunk", X, 2), call("chunk", X, 3, -1), call("split", X, 2),
    call("split", X, (2, 5), 1), call("unbind", X, backward=False), call("flatten", IMAGE, 1), call("flip", X, (0, 1)),
    call("gather", X, 0, INDEX), call("gather", X, 1, V([[0, 6], [1, 2], [3, 3], [4, 5], [0, 0]], "Int64")),
    call("masked_select", X, TRUTH), call("narrow", X, 1, 2, 3), call("permute", IMAGE, (0, 2, 3, 1)),
    call("reshape", X, (7, 5)), call("reshape", IMAGE, (2, -1)),
    call("scatter", X, 0, V([[0, 2, 1], [3, 4, 0]], "Int64"), T(2, 3)), call("select", X, 0, 2, backward=False),
    call("squeeze", T(5, 1, 7), 1), call("unsqueeze", X, 1), call("swapaxes", X, 0, 1), call("tile", X, (2, 3)),
    call("transpose", IMAGE, 1, -1), call("triu", X), call("triu", X, 1), call("where", TRUTH, X, Y),
    call("where", TRUTH, 0, 1), call("meshgrid", T(3), T(4)), call("clamp", X, -0.5, 0.5), call("clip", X, -0.5, 0.5),
    call("clamp", X, min=-0.5, max=None), call("softmax", X, 1), call("softmax", X, dim=0),
    call("eye", 4), call("eye", 3, 5), call("ones", (2, 3)), call("zeros", (2, 3)), call("item", T(1)),
    call("polar", POSITIVE, X, backward=False), call("imag", X, backward=False),
    *(call(f"special.{api}", X) for api in ("erfc", "expm1", "round", "sinc")),
    call("special.log1p", POSITIVE),
    *(call(f"F/{api}", X) for api in (
        "hardshrink", "hardsigmoid", "hardswish", "relu", "sigmoid", "silu", "softshrink", "tanh")),
    call("F/softplus", X, backward=False), call("F/softmax", X, dim=-1), call("F/glu", T(5, 8)),
    call("F/prelu", X, V([0.25])), call("F/linear", X, T(4, 7)), call("F/linear", X, T(4, 7), T(4)),
    call("F/linear", T(2, 3, 7), T(4, 7), bias=T(4)), call("F/adaptive_max_pool2d", IMAGE, (2, 2)),
    call("F/group_norm", T(2, 6, 4, 4), 3), call("F/group_norm", T(2, 6, 4, 4), 3, T(6), T(6, seed=1), 1e-3),
    call("F/binary_cross_entropy", T(5, 7, low=0.05, high=0.95), T(5, 7, low=0, high=1)),
    call("F/binary_cross_entropy_with_logits", X, T(5, 7, low=0, high=1)),
    call("F/nll_loss", X, V([0, 6, 2, 3, 1], "Int64")), call("F/smooth_l1_loss", X, Y),
    call("F/interpolate", IMAGE, scale_factor=2.0, mode="nearest"),
    call("F/grid_sample", IMAGE, T(2, 4, 4, 2, low=-1, high=1), align_corners=False),
    call("F/pixel_shuffle", T(2, 8, 3, 3), 2), call("F/upsample", IMAGE, scale_factor=2.0, mode="nearest"),
    call("F/dropout", X, 0.5, training=False), call("F/flatten", IMAGE, 1),
]  # fmt: skip
