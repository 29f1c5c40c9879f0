# SPDX-License-Identifier: Apache-2.0
"""Run MPI training jobs on Kubernetes from Python.

`Client().run(function, nodes=4)` runs a function on the ranks of a job and returns their results.
`trireme.training` and `trireme.mpijob` have the clients of TrainJobs and MPIJobs. In the pods of a
job, only `report` exists: everything else is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trireme._progress import report

if TYPE_CHECKING:
    from trireme._allocation import Ranks
    from trireme.errors import JobFailed, JobFailedError, TrainingSDKException, ValidationError
    from trireme.job import Job, JobArray
    from trireme.run import AsyncClient, Client, Plan

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "Client",
    "Job",
    "JobArray",
    "JobFailed",
    "JobFailedError",
    "Plan",
    "Ranks",
    "TrainingSDKException",
    "ValidationError",
    "report",
]

_MODULES = {"Ranks": "trireme._allocation", "Job": "trireme.job", "JobArray": "trireme.job"}
_ERRORS = {"JobFailed", "JobFailedError", "TrainingSDKException", "ValidationError"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'trireme' has no attribute {name!r}")
    import importlib

    module_name = _MODULES.get(name, "trireme.errors" if name in _ERRORS else "trireme.run")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ImportError(f"trireme.{name} cannot be used in the pods of a job: {error}") from error
    return getattr(module, name)
