# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the package.

Each of them is a `TrainingSDKException`, and has `reason` (one word that code may decide by), `cause`
and `remedy`. Those with a Python equivalent are also that: a `ValidationError` is a `ValueError`.
"""

from __future__ import annotations

import re
from typing import Any


class TrainingSDKException(Exception):
    """The base of all exceptions of this package."""

    def __init__(self, message: str, *, reason: str = "", cause: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or type(self).__name__
        self.cause = cause or message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}. {self.remedy}" if self.remedy else self.message


class ValidationError(TrainingSDKException, ValueError):
    """A value of a call is invalid. Nothing was sent to the cluster."""

    def __init__(self, field: str, message: str, *, remedy: str = "") -> None:
        super().__init__(f"{field}: {message}", reason="Invalid", cause=message, remedy=remedy)
        self.field = field


class RuntimeUnavailableError(TrainingSDKException, RuntimeError):
    """The runtime of a job does not exist, or is not for MPI."""


class WaitTimeoutError(TrainingSDKException, TimeoutError):
    """A job has not finished in the time that the caller waits. The job continues."""


class ConnectionFailedError(TrainingSDKException, ConnectionError):
    """There is no configuration for a cluster, or its API server cannot be reached."""


class K8sApiException(TrainingSDKException):
    """The API server answered with an error."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        details: dict[str, Any] | None = None,
        remedy: str = "",
    ) -> None:
        super().__init__(message, reason=reason, remedy=remedy)
        self.status = status
        self.details = details or {}


class NotFoundError(K8sApiException):
    """The object does not exist (404)."""


class AlreadyExistsError(K8sApiException):
    """An object of that name exists already (409)."""


class ForbiddenError(K8sApiException):
    """The caller has no permission (403)."""


class UnauthorizedError(K8sApiException):
    """The API server does not accept the caller's credentials (401)."""


class InvalidObjectError(K8sApiException, ValueError):
    """The API server or Trireme's admission refused the object as invalid (422)."""


class QuotaExceededError(ForbiddenError):
    """A ResourceQuota of the namespace does not allow the job."""


class JobFailedError(TrainingSDKException):
    """A job has failed.

    If an exception of the function is known, `advice` and `remedy` say what to do. Otherwise both are the
    message of the job's status, which names the pod or rank, the cause and the remedy in one text: the
    API does not have the remedy alone.
    """

    def __init__(
        self,
        message: str,
        logs: str = "",
        status: Any = None,
        *,
        reason: str = "",
        cause: str = "",
        remedy: str = "",
        rank: int | None = None,
        node: str | None = None,
        last_lines: list[str] | None = None,
    ) -> None:
        super().__init__(message, reason=reason, cause=cause)
        # The operator's message contains the remedy: do not print it twice.
        self.remedy = remedy
        self.advice = remedy
        self.logs = logs
        self.status = status
        self.rank = rank
        self.node = node
        self.last_lines = last_lines or []

    def __str__(self) -> str:
        return self.message


class JobFailed(JobFailedError):
    """A function that ran on the ranks of a job has failed.

    `exception` is the exception that the rank raised, if it can be unpickled here; it is also the
    `__cause__`. `traceback` is the rank's traceback as text.
    """

    exception: BaseException | None = None
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.message}\n\n{self.traceback}".rstrip() if self.traceback else self.message


class AllocationEndedError(TrainingSDKException):
    """The pods of an allocation do not wait for calls any more."""


class ResultsUnavailableError(TrainingSDKException):
    """The job succeeded, but not all results of its ranks could be read."""


class PayloadTooLargeError(ValidationError):
    """Function, arguments and code are larger than a Secret can carry."""


# Names of the contracts for the same exceptions.
ODHError = TrainingSDKException
AuthenticationError = UnauthorizedError
ResourceQuotaExceeded = QuotaExceededError


def node_of(status: Any, host: str | None) -> str | None:
    """Returns the node of the pod with that host name, if the status of the job has the pod."""
    for pod in [status.launcher_pod_status, *status.worker_pod_statuses]:
        # The name of a pod is its host name, for most kinds with the number of the restart.
        if host and pod and pod.name and re.fullmatch(re.escape(host) + r"(-r[0-9]+)?", pod.name):
            node: str | None = pod.node
            return node
    return None


def job_failure(error: type[JobFailedError], name: str, status: Any, logs: str = "") -> JobFailedError:
    """Returns the exception for a failed job, from its status."""
    process = status.failed_process
    message = status.failure_message or "the operator gives no message"
    return error(
        f"job {name} failed: {status.failure_reason}: {message}",
        logs,
        status,
        reason=status.failure_reason or "Failed",
        cause=(process.error if process else None) or status.failure_cause or message,
        remedy=message,
        rank=process.rank if process else None,
        node=node_of(status, process.host) if process else None,
        last_lines=process.last_lines if process else None,
    )
