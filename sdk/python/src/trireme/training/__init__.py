# SPDX-License-Identifier: Apache-2.0
"""The client of TrainJobs, its objects and its exceptions."""

from trireme._aio import asynchronous
from trireme._jobs import Event
from trireme._models import (
    Condition,
    FailedProcess,
    InitializerSpec,
    PodStatus,
    ResourceRequirements,
    RuntimeRef,
    TimelineEntry,
    TrainerSpec,
    TrainJob,
    TrainJobSpec,
    TrainJobStatus,
)
from trireme._objects import ObjectMeta
from trireme.errors import (
    AlreadyExistsError,
    ConnectionFailedError,
    ForbiddenError,
    InvalidObjectError,
    JobFailedError,
    K8sApiException,
    NotFoundError,
    QuotaExceededError,
    RuntimeUnavailableError,
    TrainingSDKException,
    UnauthorizedError,
    ValidationError,
    WaitTimeoutError,
)
from trireme.training.client import EnvVar, JobList, JobMetrics, PodUsage, Runtime, TrainingClient

AsyncTrainingClient = asynchronous(TrainingClient, "AsyncTrainingClient", __name__)

__all__ = [
    "AlreadyExistsError",
    "AsyncTrainingClient",
    "Condition",
    "ConnectionFailedError",
    "EnvVar",
    "Event",
    "FailedProcess",
    "ForbiddenError",
    "InitializerSpec",
    "InvalidObjectError",
    "JobFailedError",
    "JobList",
    "JobMetrics",
    "K8sApiException",
    "NotFoundError",
    "ObjectMeta",
    "PodStatus",
    "PodUsage",
    "QuotaExceededError",
    "ResourceRequirements",
    "Runtime",
    "RuntimeRef",
    "RuntimeUnavailableError",
    "TimelineEntry",
    "TrainJob",
    "TrainJobSpec",
    "TrainJobStatus",
    "TrainerSpec",
    "TrainingClient",
    "TrainingSDKException",
    "UnauthorizedError",
    "ValidationError",
    "WaitTimeoutError",
]
