# SPDX-License-Identifier: Apache-2.0
"""Reports of a program about its progress. This module runs in pods, too: only the standard library."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any, Dict, Optional

MARK = "trireme: "
# Variables with which mpirun tells a process its rank: Open MPI, PMIx, then MPICH and Intel MPI.
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
MAX_STEP = 1 << 53
SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


def rank() -> int:
    """Returns the rank of this process in MPI_COMM_WORLD, 0 outside of MPI."""
    return next((int(os.environ[name]) for name in RANK_VARIABLES if name in os.environ), 0)


def size() -> int:
    """Returns the number of ranks, 1 outside of MPI."""
    return next((int(os.environ[name]) for name in SIZE_VARIABLES if name in os.environ), 1)


def report(step: Optional[int] = None, of: Optional[int] = None, **metrics: Any) -> None:
    """Reports the progress of the job: step `step` of `of` steps, and metrics such as a loss.

    Rank 0 prints a line that Trireme reads, such as `trireme: {"step": 3, "of": 10, "loss": 0.5}`.
    Other ranks print nothing.
    """
    if rank() != 0:
        return
    values: Dict[str, Any] = {}
    if step is not None:
        values["step"] = int(step)
    if of is not None:
        values["of"] = int(of)
    for name, value in metrics.items():
        # Numbers of numpy and tensors of one element are numbers, too.
        number = float(value)
        if not math.isfinite(number):
            values[name] = str(number)
        else:
            values[name] = int(number) if isinstance(value, int) else number
    # One write: a line in two pieces may have the output of other ranks in between.
    sys.stdout.write(MARK + json.dumps(values) + "\n")
    sys.stdout.flush()


def parse(line: str) -> Optional[Dict[str, Any]]:
    """Returns what a line of output reports, or None."""
    _, found, text = line.partition(MARK + "{")
    if not found:
        return None
    try:
        values = json.loads("{" + text[: text.rfind("}") + 1])
    except (ValueError, RecursionError):
        return None
    # As the agent reads it: members of another type are ignored. Any program can print such a line.
    report = {}
    for name, value in values.items():
        if name in ("step", "of"):
            value = _whole_number(value)
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            report[name] = value
    return report


def _whole_number(value: Any) -> Optional[int]:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if 0 <= number <= MAX_STEP and not isinstance(value, bool) else None
