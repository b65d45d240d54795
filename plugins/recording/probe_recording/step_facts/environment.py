"""Facts about the environment of a program: versions, environment variables, the state of its repository."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import IO

from probe_core import __version__
from probe_recording.step_facts.conditions import HASH_BYTES, Fact

LIBRARIES = (
    "numpy", "scipy", "torch", "torchvision", "torchaudio", "torch_npu", "transformers", "accelerate", "peft",
    "deepspeed", "megatron", "apex", "flash_attn", "xformers", "transformer_engine", "triton", "lightning",
    "mindspore", "mindformers", "timm", "datasets", "tokenizers",
)  # fmt: skip
"""Packages whose versions may change numbers; versions of imported packages are recorded."""

VARIABLES = (
    # threads and instruction sets of the host
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_CBWR", "MKL_DYNAMIC",
    "MKL_ENABLE_INSTRUCTIONS", "KMP_AFFINITY", "KMP_DETERMINISTIC_REDUCTION", "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE",
    "OPENBLAS_CORETYPE", "PYTHONHASHSEED",
    # NVIDIA
    "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG",
    "CUDNN_DETERMINISTIC", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "NCCL_ALGO", "NCCL_PROTO",
    "NCCL_NVLS_ENABLE", "NCCL_DETERMINISTIC", "NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN",
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO", "FLASH_ATTENTION_DETERMINISTIC", "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_CUDNN_V8_API_DISABLED",
    # Ascend
    "HCCL_DETERMINISTIC", "HCCL_ALGO", "HCCL_INTRA_ROCE_ENABLE", "HCCL_INTRA_PCIE_ENABLE",
    "LCCL_DETERMINISTIC", "ATB_MATMUL_SHUFFLE_K_ENABLE", "ATB_LLM_LCOC_ENABLE", "CLOSE_MATMUL_K_SHIFT",
    "ASCEND_LAUNCH_BLOCKING", "TASK_QUEUE_ENABLE", "COMBINED_ENABLE", "CPU_AFFINITY_CONF",
    "INF_NAN_MODE_ENABLE", "INF_NAN_MODE_FORCE_DISABLE", "PYTORCH_NPU_ALLOC_CONF", "MS_ENABLE_LCCL",
    "MS_DEV_RUNTIME_CONF", "MS_INTERNAL_DISABLE_CUSTOM_KERNEL_LIST",
    # compilers
    "TORCHDYNAMO_DISABLE", "PYTORCH_JIT", "XLA_FLAGS", "TRITON_F32_DEFAULT",
)  # fmt: skip
"""Environment variables that may change numbers; no other variable is recorded."""

MAX_VALUE_LENGTH = 500
"""Number of characters after which the recorded value of a variable is truncated."""

GIT_COMMAND = (
    "git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}",
    "-c", "diff.external=", "-c", "filter.lfs.process=", "-c", "filter.lfs.clean=", "-c",
    "filter.lfs.required=false",
)  # fmt: skip
"""Beginning of a command that reads a repository without running its hooks, monitors or filters."""

GIT_TIMEOUT_SECONDS = 1.0
"""Longest time that the first step waits for git."""


def read_versions() -> dict[str, Fact]:
    """Return the versions of Python, probe and the libraries that the program imported."""
    facts: dict[str, Fact] = {"python": platform.python_version(), "probe": __version__}
    for name in LIBRARIES:
        module = sys.modules.get(name)
        if module is None:
            continue
        version = getattr(module, "__version__", None)
        if version is None:
            with suppress(metadata.PackageNotFoundError):
                version = metadata.version(name)
        if version is not None:
            facts[name] = str(version)[:MAX_VALUE_LENGTH]
    return facts


def read_variables() -> dict[str, Fact]:
    """Return the environment variables of ``VARIABLES`` that are set."""
    return {name: os.environ[name][:MAX_VALUE_LENGTH] for name in VARIABLES if name in os.environ}


def read_processor() -> dict[str, Fact]:
    """Return the architecture of the machine, and the model of its processor if the system reports it."""
    name = ""
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
        name = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    return {"architecture": platform.machine(), "processor": name or platform.processor()}


class SourceState:
    """The script of the program, and the state of the git repository that it is in.

    Git runs in parallel to the program. A step lacks the facts that git has not reported when the step is written.
    """

    def __init__(self) -> None:
        self._facts: dict[str, Fact] = {}
        self._has_begun = False
        self._changes: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    def read_facts(self, seconds: float = 0.0) -> dict[str, Fact]:
        """Return the facts that are available.

        Args:
            seconds: The time to wait for git at the first call.
        """
        if self._has_begun:
            seconds = 0.0
        else:
            self._has_begun = True
            with suppress(OSError, subprocess.SubprocessError):
                self._begin()
        if self._changes is not None:
            with suppress(subprocess.TimeoutExpired, OSError):
                self._collect(self._changes.wait(seconds))
        return self._facts

    def _begin(self) -> None:
        path = Path(getattr(sys.modules.get("__main__"), "__file__", None) or "")
        if path.name and path.is_file():
            self._facts["script"] = path.name
            self._facts["script_hash"] = hashlib.blake2b(path.read_bytes(), digest_size=HASH_BYTES).hexdigest()
        directory = path.parent if path.name else Path.cwd()
        commit = subprocess.run(
            [*GIT_COMMAND, "rev-parse", "--verify", "HEAD"], cwd=directory, env=_create_environment(),
            timeout=GIT_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip
        if commit.returncode:
            return
        self._facts["commit"] = commit.stdout.decode("ascii", "replace").strip()[:64]
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed when git has ended
        self._changes = subprocess.Popen(
            [*GIT_COMMAND, "diff", "--no-ext-diff", "--no-textconv", "--full-index", "HEAD", "--", ":/"],
            cwd=directory, env=_create_environment(), stdin=subprocess.DEVNULL, stdout=self._output,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def _collect(self, code: int) -> None:
        """Add whether the repository has uncommitted changes, and a hash of them."""
        self._changes = None
        output, self._output = self._output, None
        if output is None:
            return
        with output:
            if code == 0:
                digest = hashlib.blake2b(digest_size=HASH_BYTES)
                size = output.seek(0, os.SEEK_END)
                output.seek(0)
                while block := output.read(1 << 20):
                    digest.update(block)
                self._facts["changes"] = digest.hexdigest() if size else "none"


@cache
def load_source() -> SourceState:
    """Return the state of the source of this process, the same object for all callers."""
    return SourceState()


def _create_environment() -> dict[str, str]:
    """Return the environment for git, without variables that point it to another repository."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
    }
