# SPDX-License-Identifier: Apache-2.0
"""Runs a command in a container, with its standard input and output, as `kubectl exec` does."""

from __future__ import annotations

import json
from typing import Any

import websocket

from trireme import errors
from trireme._jobs import pod_path
from trireme._kube import Kube

STDIN, STDOUT, STDERR, ERROR = range(4)
# The API server and the node forward messages of this size whole.
PIECE = 32 << 10


class Exec:
    """A command that runs in a container. Closing it closes the command's standard input."""

    def __init__(
        self, kube: Kube, namespace: str, pod: str, container: str, command: list[str], silence: float
    ) -> None:
        """After `silence` seconds without output, reading raises ConnectionFailedError."""
        query: list[tuple[str, str]] = [("command", word) for word in command]
        query += [("container", container), ("stdin", "true"), ("stdout", "true"), ("stderr", "true")]
        self._socket: Any = kube.websocket(pod_path(namespace, pod, "exec"), query)
        self._socket.settimeout(silence)
        self._errors = b""

    def write(self, data: bytes) -> None:
        """Sends standard input."""
        try:
            for start in range(0, len(data), PIECE):
                self._socket.send_binary(bytes([STDIN]) + data[start : start + PIECE])
        except (websocket.WebSocketException, OSError) as error:
            raise errors.ConnectionFailedError(f"the connection to the pod was closed: {error}") from error

    def read(self) -> bytes:
        """Returns a part of standard output. Raises ConnectionFailedError at its end."""
        while True:
            try:
                opcode, message = self._socket.recv_data()
            except (websocket.WebSocketException, OSError) as error:
                raise errors.ConnectionFailedError(f"the connection to the pod was closed: {error}") from error
            if opcode == websocket.ABNF.OPCODE_CLOSE:
                raise errors.ConnectionFailedError("the connection to the pod was closed")
            channel, data = (message[0], message[1:]) if message else (STDERR, b"")
            if channel == STDOUT and data:
                return bytes(data)
            if channel == STDERR:
                self._errors = (self._errors + data)[-2000:]
            if channel == ERROR:
                raise errors.ConnectionFailedError(f"the command in the pod has ended: {self._end(data)}")

    def _end(self, data: bytes) -> str:
        text = self._errors.decode(errors="replace").strip()
        return text or str(json.loads(data).get("message", "")) or "without a message"

    def close(self) -> None:
        self._socket.close(timeout=1)

    def __enter__(self) -> Exec:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
