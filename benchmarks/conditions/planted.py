"""Planted differences of conditions, and models that are trained with two seeds."""

from __future__ import annotations

from importlib.metadata import version

from conditions.case import BATCH, DRAW, SEED, Bits, Case, Kind, Run, Source

OTHER_NUMPY = next(one for one in ("2.2.6", "2.2.5") if one != version("numpy"))
DATA = (*BATCH, r"\bdata\b", r"\bdata ?set\b")


def _by_argument(
    name: str,
    program: str,
    arguments: str,
    *names: str,
    bits: Bits = Bits.DIFFERENT,
    accuses_none: bool = False,
) -> Case:
    target = Run(program, tuple(arguments.split()))
    return Case(name, Kind.CONDITIONS, target, Run(program), names, bits, accuses_none)


def _by_variable(name: str, program: str, assignment: str, *names: str, bits: Bits = Bits.ANY) -> Case:
    variables = dict(one.split("=") for one in assignment.split())
    return Case(name, Kind.CONDITIONS, Run(program, environment=variables), Run(program), names, bits)


CONDITIONS = (
    _by_argument("torch-seed", "gpt", "--seed 2", *SEED, accuses_none=True),
    _by_argument("numpy-seed", "lstm", "--numpy-seed 4", *SEED, *BATCH, accuses_none=True),
    _by_argument("python-seed", "lstm", "--python-seed 4", *SEED, *BATCH, accuses_none=True),
    _by_argument("matmul-precision", "gpt", "--precision medium", r"matmul[ _.]?precision", bits=Bits.ANY),
    _by_argument("deterministic-algorithms", "vae", "--deterministic", r"deterministic[ _]algorithms", bits=Bits.EQUAL),
    _by_argument("set-num-threads", "cnn", "--threads 1", r"threads", bits=Bits.ANY),
    _by_variable("omp-num-threads", "policy", "OMP_NUM_THREADS=1", r"threads"),
    _by_argument("default-dtype", "lstm", "--double", r"default[ _]d(ata )?type"),
    _by_argument("autocast-off", "policy", "--amp none", r"autocast"),
    _by_argument("autocast-dtype", "policy", "--amp float16", r"autocast.*float16|float16.*autocast"),
    _by_argument(
        "attention-backend",
        "gpt",
        "--attention math",
        r"\bsdpa?(_|\b)|_sdp\b|SDPBackend|\bflash|attention[ .](kernel|backend|implementation)",
    ),
    _by_argument("allow-tf32", "cnn", "--tf32", r"tf32|matmul[ _.]?precision", bits=Bits.EQUAL),
    _by_argument(
        "cudnn-benchmark",
        "cnn",
        "--cudnn-benchmark",
        r"cudnn[ _.]?benchmark|cudnn.*\bbenchmark",
        bits=Bits.EQUAL,
    ),
    _by_argument("mkldnn-off", "vae", "--no-mkldnn", r"mkl-?dnn|one-?dnn", bits=Bits.ANY),
    _by_variable(
        "cpu-capability",
        "gpt",
        "ATEN_CPU_CAPABILITY=default",
        r"ATEN_CPU_CAPABILITY|cpu[ _.]capability|instruction",
    ),
    _by_variable("mkl-cbwr", "vae", "MKL_CBWR=COMPATIBLE", r"MKL_CBWR"),
    _by_variable("tf32-override", "cnn", "NVIDIA_TF32_OVERRIDE=0", r"NVIDIA_TF32_OVERRIDE", bits=Bits.EQUAL),
    _by_argument("batch-size", "vae", "--batch-size 8", *BATCH, accuses_none=True),
    _by_argument("other-data", "lstm", "--data other_reviews.npz", *DATA, accuses_none=True),
    _by_argument("shuffle-seed", "cnn", "--loader-seed 8", *BATCH, *SEED, r"order of the data", accuses_none=True),
    _by_argument("skipped-batch", "policy", "--skip 1", *BATCH, r"position", accuses_none=True),
    _by_argument("evaluation-mode", "cnn", "--eval", r"\btraining\b|\beval(uation)?\b"),
    _by_argument("learning-rate", "gpt", "--lr 0.002", r"\blr\b|learning rate"),
    _by_argument("betas", "vae", "--beta2 0.95", r"\bbetas?2?\b"),
    _by_argument("weight-decay", "policy", "--weight-decay 0.1", r"weight[ _]decay"),
    Case(
        "other-commit",
        Kind.CONDITIONS,
        Run("lstm", source=Source.OTHER_COMMIT),
        Run("lstm"),
        (r"commit|revision",),
        Bits.EQUAL,
    ),
    Case(
        "modified-files",
        Kind.CONDITIONS,
        Run("gpt", source=Source.MODIFIED),
        Run("gpt"),
        (r"dirty|modifi|uncommitted|not committed|local change",),
        Bits.EQUAL,
    ),
    Case(
        "numpy-version",
        Kind.CONDITIONS,
        Run("lstm", requirement=f"numpy=={OTHER_NUMPY}"),
        Run("lstm"),
        (rf"numpy.*{OTHER_NUMPY}",),
        Bits.EQUAL,
    ),
    _by_argument("draw-within-step", "gpt", "--noise 1", *DRAW, accuses_none=True),
    _by_argument("draw-between-steps", "cnn", "--noise 0.1", *DRAW, accuses_none=True),
    _by_variable("world-size", "policy", "WORLD_SIZE=2 RANK=0", r"WORLD_SIZE|world[ _.]size|\branks\b"),
)
"""Each pair differs in one condition."""

IN_MODEL = ("dropout", "alpha-dropout", "dropout2d", "lstm", "encoder", "attention-dropout",
            "stochastic-depth", "noisy-linear", "bayesian", "gumbel")  # fmt: skip
"""Models of ``programs/noise.py``: all seeds receive the same batches."""
IN_DATA = ("gan", "diffusion", "policy-gradient", "q-learning", "skip-gram", "masked-language", "denoising",
           "mixup", "erasing", "contrastive")  # fmt: skip
"""Models of ``programs/sampling.py``: seeds choose, mask or augment the data."""


def _two_seeds(model: str, program: str, names: tuple[str, ...], *, is_pretrained: bool) -> Case:
    arguments = (model, "--pretrained") if is_pretrained else (model,)
    target, golden = (Run(program, (*arguments, "--seed", seed)) for seed in "21")
    return Case(model, Kind.SEEDS, target, golden, names, accuses_none=True)


SEEDS = tuple(
    _two_seeds(model, program, names, is_pretrained=number % 2 == 0)
    for program, models, names in (("noise", IN_MODEL, SEED), ("sampling", IN_DATA, (*SEED, *BATCH)))
    for number, model in enumerate(models)
)
"""Every other model starts with the same weights for all seeds, so that its first draw differs first."""
