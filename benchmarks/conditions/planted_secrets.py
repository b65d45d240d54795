"""Secrets in the environment and the configuration of git, and the search for them in files."""

from __future__ import annotations

import base64
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from conditions.repository import git

NAMES = (
    "OPENAI_API_KEY", "WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "DB_PASSWORD",
    "DATABASE_URL", "MY_LAB_SETTING", "lower_case_secret", "TORCH_ACCOUNT", "TORCH_HUB_TOKEN",
    "PYTORCH_REGISTRY_KEY", "OMP_LICENSE", "MKL_LICENSE_KEY", "CUDA_REGISTRY_PASSWORD", "CUBLAS_KEY",
    "NCCL_AUTH", "HCCL_PASSWORD", "ASCEND_ACCESS_KEY", "NVIDIA_API_KEY", "XLA_TOKEN",
    "PYTHON_INDEX_PASSWORD", "PIP_INDEX_URL", "KMP_SECRET", "MS_TOKEN", "RANK_SECRET", "WORLD_SECRET",
    "SEED_PHRASE", "MASTER_PASSWORD", "SLURM_JWT",
)  # fmt: skip
"""Variables with secret values. Many begin like variables that change numbers or state ranks."""
REMOTE_SECRET = "glpat-Kx81qZsecretRemote"
HOOK_MARK = "hook-was-run.txt"
HOOKS = ("post-index-change", "pre-commit", "post-checkout", "reference-transaction")
MIN_PACKED = 60
"""Length of the shortest text that is tried as compressed data in Base64."""


def variables(number: int) -> dict[str, str]:
    """Return the environment of a run: for each name, a value that contains ``secret_value``."""
    return {name: f"https://u:{secret_value(name, number)}@example.org" for name in NAMES}


def secret_value(name: str, number: int) -> str:
    """Return the secret part of a variable's value in run ``number``."""
    return f"s3cr3t{number}x{sum(map(ord, name)):05d}x{NAMES.index(name):02d}"


def make_hostile(repository: Path) -> None:
    """Add a secret in the URL of a remote, and hooks and a file-system monitor that leave a mark."""
    mark = repository.with_name(HOOK_MARK)
    mark.unlink(missing_ok=True)
    script = f"#!/bin/sh\necho run >> '{mark}'\n"
    hooks = repository / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    git(repository, "remote", "add", "origin", f"https://user:{REMOTE_SECRET}@example.org/programs.git")
    for name in (*HOOKS, "monitor"):
        (hooks / name).write_text(script)
        (hooks / name).chmod(stat.S_IRWXU)
    git(repository, "config", "core.fsmonitor", str(hooks / "monitor"))


def leaks(paths: list[Path], printed: str, repository: Path) -> Iterator[str]:
    """Yield each secret that a file or the printed text contains, and whether git ran a hook.

    Args:
        paths: Directories whose files are searched, compressed parts included.
        printed: The output of the commands.
        repository: The repository of the programs.
    """
    secrets = {secret_value(name, number): name for name in NAMES for number in (1, 2)}
    secrets[REMOTE_SECRET] = "URL of the remote"
    pattern = re.compile(b"|".join(re.escape(value.encode()) for value in secrets))
    texts = [("the output", printed.encode())]
    for path in paths:
        texts += [(str(file), file.read_bytes()) for file in sorted(path.rglob("*")) if file.is_file()]
    for place, content in texts:
        contained = {match[0].decode() for part in parts(content) for match in pattern.finditer(part)}
        yield from (f"{place} contains {secrets[value]}" for value in sorted(contained))
    if repository.with_name(HOOK_MARK).exists():
        yield "git ran a hook or the file-system monitor of the repository"


def parts(content: bytes) -> Iterator[bytes]:
    """Yield a file's content, its text in UTF-16, and its compressed parts."""
    yield content
    yield content.replace(b"\0", b"")
    if content.startswith(b"PK"):
        import io

        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            yield from (archive.read(name) for name in archive.namelist())
    for packed in re.findall(rb"[A-Za-z0-9+/]{%d,}={0,2}" % MIN_PACKED, content):
        try:
            yield zlib.decompress(base64.b64decode(packed, validate=True))
        except (ValueError, zlib.error):
            continue
