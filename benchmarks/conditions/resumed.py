"""Resumed runs: complete ones, and ones that do not restore something."""

from __future__ import annotations

from conditions.case import BATCH, PROGRAMS, SEED, Bits, Case, Kind, Run

FIRST_STEP = 3
"""The step of the uninterrupted run at which the resumed run begins."""
STEPS = 3
"""Steps of a resumed run."""
OPTIONS = ("--resumed",)


def full_run(program: str, task: str = "statistics") -> Run:
    """Return the uninterrupted run, which saves the checkpoint after step ``FIRST_STEP - 1``."""
    steps = FIRST_STEP + STEPS
    arguments = ("--steps", str(steps), "--save", "{checkpoint}")
    return Run(program, arguments, steps=f"0-{steps - 1}", task=task)


def _complete(program: str, task: str) -> Case:
    target = Run(program, ("--resume", "{checkpoint}"), task=task)
    golden = full_run(program, task)
    name = f"complete-{program}-{task}"
    return Case(name, Kind.RESUME, target, golden, bits=Bits.EQUAL, options=OPTIONS)


def _resumed(name: str, program: str, omitted: str, *names: str, bits: Bits = Bits.DIFFERENT) -> Case:
    target = Run(program, ("--resume", "{checkpoint}", "--omit", omitted))
    return Case(name, Kind.RESUME, target, full_run(program), names, bits, options=OPTIONS)


OPTIMIZER_STATE = r"state.{0,60}optimi[sz]er|optimi[sz]er.{0,60}state|\bexp_avg\b|momentum_buffer"
PARAMETER = (
    r"\b(parameters?|weight|bias)\b.*\b(restored|another|other|differs?)\b",
    r"\brestored\b.*\b(parameters?|weight|bias)\b",
)
LR = r"\blr\b|learning rate"

RESUMED = (
    *(_complete(program, task) for program in PROGRAMS for task in ("statistics", "tensor")),
    _resumed("optimizer-state", "gpt", "optimizer", OPTIMIZER_STATE),
    _resumed("momentum", "cnn", "optimizer", OPTIMIZER_STATE),
    _resumed("exp-avg", "gpt", "exp_avg", r"\bexp_avg\b"),
    _resumed("optimizer-step", "vae", "step", r"\bstep\b.{0,60}\b(count|optimi[sz]er|adamw?)\b",
             r"\b(optimi[sz]er|adamw?|state)\b.{0,80}\bstep\b"),
    _resumed("learning-rate", "policy", "lr", LR),
    _resumed("initial-lr", "policy", "initial_lr", rf"initial_lr|base_lrs?|{LR}"),
    _resumed("scheduler", "policy", "scheduler", rf"schedul|last_epoch|{LR}"),
    _resumed("average", "vae", "average", r"\baverage|\bema\b", *PARAMETER),
    _resumed("running-stats", "cnn", "running-stats", r"running_(mean|var)|running stat|buffer"),
    _resumed("torch-random", "gpt", "random", *SEED),
    _resumed("numpy-random", "lstm", "numpy", *SEED),
    _resumed("python-random", "lstm", "python", *SEED),
    _resumed("position-of-loader", "cnn", "position", r"position", *BATCH),
    _resumed("position-of-episodes", "policy", "position", r"position", *BATCH),
    _resumed("gradient-scaler", "policy", "scaler", r"scaler|\bscale\b|growth", bits=Bits.ANY),
    _resumed("frozen-vectors", "lstm", "vectors", r"embedding.*weight|weight.*embedding"),
)  # fmt: skip
"""``complete-…`` restores everything; each other case omits one thing."""
