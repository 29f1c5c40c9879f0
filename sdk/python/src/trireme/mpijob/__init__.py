# SPDX-License-Identifier: Apache-2.0
"""The client of MPIJobs, and templates for Horovod, DeepSpeed and Intel MPI."""

from trireme._aio import asynchronous
from trireme._models import PodStatus
from trireme.errors import (
    AuthenticationError,
    JobFailedError,
    NotFoundError,
    ODHError,
    QuotaExceededError,
    ResourceQuotaExceeded,
    ValidationError,
    WaitTimeoutError,
)
from trireme.mpijob.client import MPIJob, MPIJobClient, MPIJobList
from trireme.mpijob.specs import ResourceRequirements, ResourceSpec, WorkerSpec
from trireme.mpijob.templates import TEMPLATES

AsyncMPIJobClient = asynchronous(MPIJobClient, "AsyncMPIJobClient", __name__)
AsyncMPIJob = asynchronous(MPIJob, "AsyncMPIJob", __name__)

__all__ = [
    "TEMPLATES",
    "AsyncMPIJob",
    "AsyncMPIJobClient",
    "AuthenticationError",
    "JobFailedError",
    "MPIJob",
    "MPIJobClient",
    "MPIJobList",
    "NotFoundError",
    "ODHError",
    "PodStatus",
    "QuotaExceededError",
    "ResourceQuotaExceeded",
    "ResourceRequirements",
    "ResourceSpec",
    "ValidationError",
    "WaitTimeoutError",
    "WorkerSpec",
]
