"""Random training programs with a fault between the backward pass and the step of the optimizer.

``Witness`` notes by itself what each step of the optimizer takes, to hold statements against it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from faults.cases import Case, Cause, Line, Training
from torch import Tensor, nn
from torch.nn import functional

SIZE = 8
FAULTS = {
    "clipped or unclipped": ("unclipped", "clipped", "another limit", "another norm", "clipped late"),
    "stale gradient": ("not set to zero", "of the step before", "copied of the step before"),
}
CONTROLS = ("the same", "foreach", "fused", "zeros", "idle clip", "foreach clip")
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9, "lr": 0.05},
    "Adam": {"lr": 3e-3},
    "AdamW": {"lr": 3e-3, "weight_decay": 0.1},
    "RMSprop": {"lr": 1e-3},
    "Adagrad": {"lr": 0.01},
    "NAdam": {"lr": 2e-3},
    "Adamax": {"lr": 2e-3},
}
FUSED = ("SGD", "Adam", "AdamW", "Adagrad")
NORMS = re.compile(r"\(([\w.]+): norm ([-+.\de]+) against ([-+.\de]+)")
CALLED = re.compile(r"the (target|golden) calls (clip_grad_\w+)\([^)]*\), the (?:target|golden) does not")
PRINTED = 1e-4


class Attending(nn.Module):
    """A layer of attention, whose keys may have a bias; its gradient is zero in theory."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(SIZE, SIZE, bias=bias) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the layer."""
        scores = self.query(x) @ self.key(x).transpose(1, 2) / SIZE**0.5
        return x + torch.softmax(scores, -1) @ self.value(x)


class Feeding(nn.Module):
    """A layer of two linear maps behind a norm."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(SIZE)
        self.up, self.down = nn.Linear(SIZE, 2 * SIZE, bias=bias), nn.Linear(2 * SIZE, SIZE, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the layer."""
        return x + self.down(functional.gelu(self.up(self.norm(x))))


@dataclass(frozen=True)
class Plan:
    """A program.

    Attributes:
        fault: The fault; empty for a control.
        control: The kind of control.
        optimizer: Name of the optimizer.
        foreach: True for one that computes all parameters together.
        fused: True for one that is a single call, where there is one.
        layers: Kinds of layers.
        bias: True for layers with biases.
        clips: The function that clips the gradients: norm, value, or none.
        share: The limit, as a share of what the gradients have.
        wrong_share: The limit in the target, where the fault is another one.
        norm_type: The norm that is clipped.
        clip_foreach: The argument ``foreach`` of the function.
        count: Number of steps.
    """

    fault: str
    control: str
    optimizer: str
    foreach: bool
    fused: bool
    layers: tuple[type[nn.Module], ...]
    bias: bool
    clips: str
    share: float
    wrong_share: float
    norm_type: float
    clip_foreach: bool | None
    count: int
    seed: int


def plan_of(seed: int, kind: str) -> Plan:
    """Return a random program; ``kind`` is a key of ``FAULTS``, or empty for a control."""
    chance = random.Random(seed)
    fault = chance.choice(FAULTS[kind]) if kind else ""
    control = "" if kind else chance.choice(CONTROLS)
    clipping = kind == "clipped or unclipped" or "clip" in control
    share = chance.choice((0.1, 0.5))
    return Plan(
        fault,
        control,
        chance.choice(FUSED if control == "fused" else tuple(OPTIMIZERS)),
        chance.random() < 0.5,
        chance.random() < 0.3,
        tuple(chance.choices((Attending, Feeding), k=chance.randint(1, 3))),
        chance.random() < 0.6,
        chance.choice(("norm", "value")) if clipping or chance.random() < 0.4 else "none",
        share,
        share * chance.choice((0.3, 1.8)),
        chance.choice((2.0, 2.0, 1.0, float("inf"))),
        chance.choice((None, True, False)),
        chance.choice((2, 3)) if kind != "clipped or unclipped" else chance.choice((1, 2)),
        seed,
    )


def program_of(plan: Plan, wrong: bool) -> Training:
    """Return a program; the target if ``wrong`` is set."""
    torch.manual_seed(plan.seed)
    model = nn.Sequential(nn.Linear(SIZE, SIZE), *(layer(plan.bias) for layer in plan.layers), nn.Linear(SIZE, 4))
    parameters = list(model.parameters())
    fault, control = (plan.fault, plan.control) if wrong else ("", "")
    foreach: bool | None = plan.foreach != (control == "foreach")
    is_fused = plan.optimizer in FUSED and (plan.fused or plan.control == "fused")
    if is_fused:
        fused = {"fused": not (plan.control == "fused" and not wrong)}
        foreach = None if fused["fused"] else False
    else:
        fused = {}
    optimizer = getattr(torch.optim, plan.optimizer)(parameters, foreach=foreach, **fused, **OPTIMIZERS[plan.optimizer])
    generator = torch.Generator().manual_seed(plan.seed + 1)
    batches = [torch.randn(3, 5, SIZE, generator=generator) for _ in range(plan.count)]
    wanted = torch.randn(3, 5, 4, generator=generator)
    ahead = nn.Sequential(*model)  # the gradients of the first step say which limit clips
    functional.mse_loss(ahead(batches[0]), wanted).backward()
    flat = torch.cat([one.grad.flatten() for one in parameters if one.grad is not None])
    model.zero_grad()
    saved: list[Tensor] = []

    def limit(share: float, norm_type: float) -> float:
        whole = flat.abs().max() if plan.clips == "value" else flat.norm(norm_type)
        return float(f"{share * float(whole):.3g}")

    share = plan.wrong_share if fault == "another limit" else plan.share
    highest = limit(1e6 if plan.control == "idle clip" else share, plan.norm_type)
    clip_foreach = plan.clip_foreach if control != "foreach clip" else not plan.clip_foreach

    def clip() -> None:
        norm_type = plan.norm_type
        if plan.clips == "value":
            if fault == "another norm":
                nn.utils.clip_grad_norm_(parameters, highest, 2.0, foreach=clip_foreach)
            else:
                nn.utils.clip_grad_value_(parameters, highest, foreach=clip_foreach)
        elif plan.clips == "norm":
            if fault == "another norm":
                norm_type = 2.0 if norm_type != 2.0 else float("inf")
            nn.utils.clip_grad_norm_(parameters, highest, norm_type, foreach=clip_foreach)

    clips_here = plan.clips != "none" and fault not in ("unclipped", "clipped late")
    if plan.fault == "clipped":
        clips_here = wrong
    if plan.control == "idle clip":
        clips_here = wrong

    def use_old() -> None:
        new = [one.grad.clone() for one in parameters if one.grad is not None]
        for one, old in zip([one for one in parameters if one.grad is not None], saved or new):
            if fault == "copied of the step before":
                one.grad.copy_(old)
            else:
                one.grad = old
        saved[:] = new

    def step(number: int) -> Tensor:
        loss = functional.mse_loss(model(batches[number]), wanted)
        loss.backward()
        if fault.endswith("of the step before"):
            use_old()
        if clips_here:
            clip()
        optimizer.step()
        if fault == "clipped late":
            clip()
        if fault != "not set to zero":
            optimizer.zero_grad(set_to_none=control != "zeros")
        return loss

    program = Training(model, step, plan.count)
    program.optimizer = optimizer  # type: ignore[attr-defined]
    return program


def training_case(seed: int, kind: str) -> Case:
    """Return a random training program with a random fault of a kind; a control without one."""
    plan = plan_of(seed, kind)
    right = {"": (), "clipped or unclipped": (Line(text="clip_grad"),)}.get(kind, STALE)
    shown = ", ".join(f"{name} {value}" for name, value in vars(plan).items() if name != "layers")
    return Case(f"{'training' if kind else 'steady'}{seed}", shown, lambda wrong: program_of(plan, wrong), right)


STALE = (
    Line(text=r"to earlier ones", step=1),
    Line(text=r"differ when \w+ takes them", step=1),
    Line(text=r"in one run only.*use_old|called in the target only.*use_old", step=1),
    Line(op=r"^(Tensor|Torch|Functional)\.", text=r"receives values that differ.*optimizer\.step\(\)", step=1),
)


@dataclass
class Taken:
    """Gradients that one step of the optimizer takes: their norms, and if there were some before."""

    gradients: dict[str, float]
    clipped: bool = False


@dataclass
class Witness:
    """A stand-in for a recorder, which notes what the steps of an optimizer take."""

    taken: list[Taken] = field(default_factory=list)

    def watch(self, program: Training) -> Witness:
        """Run a program, and note what its optimizer takes."""
        names = {id(one): name for name, one in program.model.named_parameters()}
        originals = {name: getattr(nn.utils, name) for name in ("clip_grad_norm_", "clip_grad_value_")}
        clipped: list[str] = []

        def spied(name: str) -> Callable[..., Any]:
            def spy(*given: Any, **settings: Any) -> Any:
                clipped.append(name)
                return originals[name](*given, **settings)

            return spy

        def before(optimizer: Any, *_: Any) -> None:
            held = [one for group in optimizer.param_groups for one in group["params"]]
            norms = {names[id(one)]: float(one.grad.double().norm()) for one in held if one.grad is not None}
            self.taken.append(Taken(norms, bool(clipped)))
            clipped.clear()

        handle = program.optimizer.register_step_pre_hook(before)  # type: ignore[attr-defined]
        for name in originals:
            setattr(nn.utils, name, spied(name))
        try:
            program.run(self)
        finally:
            handle.remove()
            for name, original in originals.items():
                setattr(nn.utils, name, original)
        return self

    def start(self, model: nn.Module) -> None:
        """Do nothing: the optimizer is watched."""

    def stop(self) -> None:
        """Do nothing."""


def wrong_on_phases(case: Case, cause: Cause) -> Iterator[str]:
    """Yield by what the programs, run once more, contradict what a cause says of the phases of a step."""
    if "phases of the step" not in cause.statement and not cause.op.startswith("phase."):
        return
    sides = [Witness().watch(case.build(wrong)).taken for wrong in (True, False)]
    if any(len(side) <= cause.step for side in sides):
        return
    target, golden = (side[cause.step] for side in sides)
    said = cause.statement.partition("phases of the step")[2] or cause.statement
    if "takes them" in said or "to earlier ones" in said:
        of_clipping = "to earlier ones" in said and (target.clipped or golden.clipped)
        for name, *norms in NORMS.findall(said):
            for one, taken, whose in zip(map(float, norms), (target, golden), ("target", "golden")):
                true = taken.gradients.get(name)
                if not of_clipping and (true is None or abs(one - true) > PRINTED * max(one, true)):
                    yield f"the {whose}'s optimizer takes {name} of norm {true}, not {one}"
    for who, name in CALLED.findall(said):
        if (target.clipped, golden.clipped) != (who == "target", who == "golden"):
            yield f"{name}: the target clips {target.clipped}, the golden {golden.clipped}"
