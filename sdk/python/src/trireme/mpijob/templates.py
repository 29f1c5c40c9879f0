# SPDX-License-Identifier: Apache-2.0
"""Starting points for MPIJobs: MPI, environment and command of common frameworks."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Template:
    """What a framework needs beside image and program."""

    mpi_implementation: str
    command: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    gpus: int = 0


# Ranks are not bound to cores: pods that share a node would all use the first ones.
OPEN_MPI = ("mpirun", "--bind-to", "none", "--map-by", "slot")
HOROVOD = {"HOROVOD_MPI_THREADS_DISABLE": "1", "NCCL_DEBUG": "WARN"}

TEMPLATES = {
    "horovod-tensorflow": Template(
        "OpenMPI",
        (*OPEN_MPI, "-x", "NCCL_DEBUG", "python3", "train.py"),
        {**HOROVOD, "TF_CPP_MIN_LOG_LEVEL": "1"},
        gpus=1,
    ),
    "horovod-pytorch": Template(
        "OpenMPI", (*OPEN_MPI, "-x", "NCCL_DEBUG", "python3", "train.py"), dict(HOROVOD), gpus=1
    ),
    # DeepSpeed reads rank and size from Open MPI's variables: its own launcher is not needed.
    "deepspeed-mpi": Template(
        "OpenMPI",
        (*OPEN_MPI, "python3", "train.py", "--deepspeed"),
        {"NCCL_DEBUG": "WARN", "MASTER_PORT": "29500"},
        gpus=1,
    ),
    "intel-mpi-pytorch": Template(
        "IntelMPI", ("mpirun", "python3", "train.py"), {"I_MPI_DEBUG": "2", "CCL_LOG_LEVEL": "warn"}
    ),
}
