# SPDX-License-Identifier: Apache-2.0
"""A thin client of the Kubernetes API: requests with retries, pages, watches and logs.

The library `kubernetes` finds the cluster and authenticates. Its generated classes are not used: the
objects here are custom resources, which it knows only as dictionaries, too.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import kubernetes.client
import kubernetes.config
import urllib3
import urllib3.exceptions
import websocket
from kubernetes.stream.ws_client import create_websocket

from trireme import errors

log = logging.getLogger("trireme")

RETRIES = 5
TRANSIENT = {429, 500, 502, 503, 504}
# Codes with which the API server refuses a request before it does anything.
REFUSED = {429, 503}
PAGE = 500
CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
# The API server ends a watch after this time, so that a dead connection is noticed.
WATCH_SECONDS = 300
# Each has the retries of a request: an API server may be away for some minutes.
WATCH_RETRIES = 20
# Each message begins with the number of its stream.
WEBSOCKET_PROTOCOL = "v4.channel.k8s.io"
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

JSON = dict[str, Any]


class Cancellation:
    """Ends the streams of a call from another thread."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self._streams: set[Stream] = set()
        self._lock = threading.Lock()

    def add(self, stream: Stream) -> None:
        with self._lock:
            self._streams.add(stream)
        if self.cancelled.is_set():
            stream.shutdown()

    def remove(self, stream: Stream) -> None:
        with self._lock:
            self._streams.discard(stream)

    def cancel(self) -> None:
        self.cancelled.set()
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.shutdown()


# The cancellation of the call that runs in this context. The asynchronous clients set it.
current_cancellation: contextvars.ContextVar[Cancellation | None] = contextvars.ContextVar(
    "trireme_cancellation", default=None
)


class Cancelled(Exception):
    """The call was cancelled by its asynchronous caller."""


class Stream:
    """The lines of a response that the server keeps open."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response
        self._ended = threading.Event()
        self._cancellation = current_cancellation.get()
        if self._cancellation:
            self._cancellation.add(self)

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        try:
            for piece in self._response.stream(65536, decode_content=True):
                rest += piece
                if b"\n" in piece:
                    *lines, rest = rest.split(b"\n")
                    yield from lines
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            if not self._ended.is_set():
                raise errors.ConnectionFailedError(f"stream interrupted: {error}") from error
        if rest:
            yield rest
        if self._cancellation and self._cancellation.cancelled.is_set():
            raise Cancelled

    @property
    def was_shut_down(self) -> bool:
        """Whether this program has ended the stream."""
        return self._ended.is_set()

    def shutdown(self) -> None:
        """Ends the iteration. Another thread may call it."""
        self._ended.set()
        with contextlib.suppress(ValueError, RuntimeError, OSError, AttributeError):
            self._response.shutdown()

    def close(self) -> None:
        self.shutdown()
        if self._cancellation:
            self._cancellation.remove(self)
        with contextlib.suppress(Exception):
            self._response.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Kube:
    """A connection to the API server of one cluster."""

    def __init__(self, configuration: kubernetes.client.Configuration, namespace: str) -> None:
        # The pool would try again by itself; this class knows which requests may be repeated.
        configuration.retries = False
        self._client = kubernetes.client.ApiClient(configuration)
        self.namespace = namespace

    @classmethod
    def connect(cls, config_file: str | None = None, in_cluster: bool = False, context: str | None = None) -> Kube:
        """Connects as kubectl does, or with the identity of the pod where there is no kubeconfig."""
        configuration = kubernetes.client.Configuration()
        namespace = "default"
        try:
            if in_cluster:
                return cls._in_cluster(configuration)
            kubernetes.config.load_kube_config(
                config_file=config_file, context=context, client_configuration=configuration
            )
            contexts, active = kubernetes.config.list_kube_config_contexts(config_file=config_file)
            chosen = next((c for c in contexts if c["name"] == context), active) if context else active
            namespace = chosen["context"].get("namespace") or "default"
        except kubernetes.config.ConfigException as error:
            if in_cluster or config_file or context:
                raise _no_configuration(error) from error
            try:
                return cls._in_cluster(configuration)
            except kubernetes.config.ConfigException:
                raise _no_configuration(error) from error
        return cls(configuration, namespace)

    @classmethod
    def _in_cluster(cls, configuration: kubernetes.client.Configuration) -> Kube:
        kubernetes.config.load_incluster_config(client_configuration=configuration)
        namespace = NAMESPACE_FILE.read_text().strip() if NAMESPACE_FILE.exists() else "default"
        return cls(configuration, namespace)

    def close(self) -> None:
        self._client.rest_client.pool_manager.clear()

    def get(self, path: str, query: JSON | None = None) -> JSON:
        return self._json("GET", path, query)

    def create(self, path: str, body: JSON, *, dry_run: bool = False) -> JSON:
        return self._json("POST", path, {"dryRun": "All"} if dry_run else None, body)

    def patch(self, path: str, body: JSON) -> JSON:
        return self._json("PATCH", path, None, body, "application/merge-patch+json")

    def delete(self, path: str, options: JSON | None = None) -> JSON:
        return self._json("DELETE", path, None, options)

    def items(self, path: str, query: JSON | None = None) -> tuple[list[JSON], str]:
        """Returns all objects, page by page, and the resource version for a watch."""
        items: list[JSON] = []
        query = {**(query or {}), "limit": PAGE}
        while True:
            page = self.get(path, query)
            items += page.get("items", [])
            metadata = page.get("metadata", {})
            if not metadata.get("continue"):
                return items, metadata.get("resourceVersion", "")
            query["continue"] = metadata["continue"]

    def text(self, path: str, query: JSON | None = None) -> str:
        return self._send("GET", path, query).data.decode(errors="replace")

    def lines(self, path: str, query: JSON | None = None) -> Stream:
        """Streams a log. It has no time limit: a program may print nothing for hours."""
        return Stream(self._send("GET", path, query, read_seconds=None, stream=True))

    def websocket(self, path: str, query: list[tuple[str, str]]) -> websocket.WebSocket:
        """Opens a connection in both directions, such as to a command in a container."""
        host = self._client.configuration.host.replace("http", "ws", 1)
        headers: dict[str, str] = {}
        self._client.update_params_for_auth(headers, [], ["BearerToken"], "", "GET", None)
        headers = {name.lower(): value for name, value in headers.items()}
        headers["sec-websocket-protocol"] = WEBSOCKET_PROTOCOL
        try:
            url = f"{host}{path}?{urlencode(query)}"
            opened: websocket.WebSocket = create_websocket(self._client.configuration, url, headers)
            return opened
        except websocket.WebSocketBadStatusException as error:
            raise api_error("CONNECT", path, error.status_code, error.resp_body or b"") from error
        except (websocket.WebSocketException, OSError) as error:
            raise errors.ConnectionFailedError(f"CONNECT {path}: {error}", reason="ConnectionFailed") from error

    def watch(
        self,
        path: str,
        query: JSON,
        *,
        deadline: float | None = None,
        opened: Callable[[Stream], None] | None = None,
    ) -> Iterator[tuple[str, JSON]]:
        """Yields ADDED, MODIFIED and DELETED with the objects: first those that exist, then each change.

        It uses one watch. If the API server ends it, it continues where it was, or, if that is too
        long ago, lists again. `opened` gets each stream, to end it from another thread.
        """
        version, failures = "", 0
        while True:
            if not version:
                items, version = self.items(path, query)
                yield "SYNCED", {"items": items}
            seconds = (
                WATCH_SECONDS if deadline is None else max(1, min(WATCH_SECONDS, int(deadline - time.monotonic()) + 1))
            )
            parameters = {**query, "watch": "true", "resourceVersion": version, "timeoutSeconds": seconds}
            parameters["allowWatchBookmarks"] = "true"
            try:
                with Stream(self._send("GET", path, parameters, read_seconds=seconds + 30, stream=True)) as stream:
                    if opened:
                        opened(stream)
                    for line in stream:
                        failures = 0
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            version = ""
                            break
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            yield event["type"], event["object"]
                    if stream.was_shut_down:
                        return
            except errors.ConnectionFailedError as error:
                failures += 1
                if failures > WATCH_RETRIES:
                    raise
                log.debug("watch interrupted, continuing: %s", error)
                pause(_pause(0))
            except errors.K8sApiException as error:
                if error.status != 410:
                    raise
                version = ""
            yield "IDLE", {}

    def _json(
        self,
        method: str,
        path: str,
        query: JSON | None = None,
        body: Any = None,
        content: str = "application/json",
    ) -> JSON:
        result: JSON = json.loads(self._send(method, path, query, body, content).data)
        return result

    def _send(
        self,
        method: str,
        path: str,
        query: JSON | None = None,
        body: Any = None,
        content: str = "application/json",
        read_seconds: float | None = READ_SECONDS,
        stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        """Sends a request, and repeats it after transient errors if it cannot have had an effect."""
        url = self._client.configuration.host + path + ("?" + urlencode(query) if query else "")
        data = json.dumps(body) if body is not None else None
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=read_seconds)
        attempt = 0
        while True:
            headers = {
                "Content-Type": content,
                "Accept": "application/json, */*",
                "User-Agent": "trireme-python",
            }
            self._client.update_params_for_auth(headers, [], ["BearerToken"], "", method, None)
            try:
                response = self._client.rest_client.pool_manager.request(
                    method,
                    url,
                    body=data,
                    headers=headers,
                    timeout=timeout,
                    retries=False,
                    preload_content=not stream,
                )
            except urllib3.exceptions.HTTPError as error:
                # A request that was not sent may always be repeated.
                unsent = isinstance(
                    error, (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)
                )
                if attempt >= RETRIES or not (unsent or method != "POST"):
                    raise errors.ConnectionFailedError(
                        f"{method} {path}: {self._client.configuration.host} cannot be reached: {error}",
                        reason="ConnectionFailed",
                        remedy="Check the network and the server of the current kubeconfig context",
                    ) from error
                delay = _pause(attempt)
            else:
                if response.status < 300:
                    result: urllib3.BaseHTTPResponse = response
                    return result
                transient = response.status in (REFUSED if method == "POST" else TRANSIENT)
                if attempt >= RETRIES or not transient:
                    raise api_error(method, path, response.status, response.data)
                delay = _retry_after(response) or _pause(attempt)
            log.debug("%s %s: transient error, retrying in %.1f s", method, path, delay)
            attempt += 1
            pause(delay)


def pause(seconds: float) -> None:
    """Sleeps, or raises Cancelled if the call is cancelled meanwhile."""
    cancellation = current_cancellation.get()
    if not cancellation:
        time.sleep(seconds)
    elif cancellation.cancelled.wait(seconds):
        raise Cancelled


def _pause(attempt: int) -> float:
    # Jitter: clients that failed together must not come back together.
    return float(min(10.0, 0.2 * 2**attempt) * (0.5 + random.random()))


def _retry_after(response: urllib3.BaseHTTPResponse) -> float | None:
    value = response.headers.get("Retry-After", "")
    return min(30.0, float(value)) if value.isdigit() else None


def _no_configuration(error: Exception) -> errors.ConnectionFailedError:
    return errors.ConnectionFailedError(
        f"no cluster is configured: {error}",
        reason="NoConfiguration",
        remedy="Set KUBECONFIG, pass config_file, or run in a pod with a service account",
    )


ERRORS: dict[int, tuple[type[errors.K8sApiException], str]] = {
    401: (errors.UnauthorizedError, "Log in to the cluster again"),
    403: (errors.ForbiddenError, "Ask a namespace admin for a role such as edit or trainjob-editor"),
    404: (errors.NotFoundError, ""),
    409: (errors.AlreadyExistsError, ""),
    422: (errors.InvalidObjectError, ""),
}


def api_error(method: str, path: str, status: int, body: bytes) -> errors.K8sApiException:
    """Returns the exception for the API server's answer, which is usually a Status object."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = {"message": body.decode(errors="replace")[:500]}
    message = answer.get("message") or f"{method} {path}: the API server answered {status}"
    kind, remedy = ERRORS.get(status, (errors.K8sApiException, ""))
    if _is_quota(status, message):
        kind, remedy = (
            errors.QuotaExceededError,
            "Request less, or wait until other jobs of the namespace have finished",
        )
    return kind(
        message,
        status=status,
        reason=answer.get("reason") or "",
        details=answer.get("details"),
        remedy=remedy,
    )


def _is_quota(status: int, message: str) -> bool:
    # Kubernetes has no reason of its own for a quota, only these words of its admission plugin and
    # of Trireme's.
    return status in (403, 422) and ("exceeded quota:" in message or "Insufficient namespace quota" in message)
