# SPDX-License-Identifier: Apache-2.0
"""A small API server that fails on demand. What a real one does is tested on a cluster."""

from __future__ import annotations

import base64
import contextlib
import copy
import hashlib
import json
import os
import re
import struct
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes.client

from trireme._kube import Kube

JSON = dict[str, Any]
PLURALS = re.compile(r"^(/apis/[^/]+/[^/]+|/api/v1)(?:/namespaces/([^/]+))?/([a-z]+)(?:/([^/]+))?(?:/([a-z]+))?$")


class FakeAPI:
    """Stores objects, sends watch events, and answers some requests with faults."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.objects: dict[tuple[str, str, str], JSON] = {}
        self.history: list[tuple[int, str, str, str, JSON]] = []
        self.version = 0
        self.forgotten = 0
        self.logs: dict[str, list[str]] = {}
        self.ended_logs: set[str] = set()
        self.cuts: list[tuple[str, int, bool]] = []
        self.faults: list[tuple[str, str, int, JSON, dict[str, str], bool]] = []
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.bodies: list[JSON] = []
        self.closing = False
        # What the caller may do, and the commands in containers by those that run here instead.
        self.allowed = True
        self.commands: Callable[[list[str]], list[str]] = lambda command: command
        self.environment: dict[str, str] = {}
        api = self

        class Handler(_Handler):
            fake = api

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def kube(self, namespace: str = "default") -> Kube:
        configuration = kubernetes.client.Configuration()
        configuration.host = self.url
        return Kube(configuration, namespace)

    def close(self) -> None:
        with self.changed:
            self.closing = True
            self.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()

    def fault(
        self,
        method: str,
        path: str,
        status: int,
        body: JSON | None = None,
        times: int = 1,
        *,
        lost: bool = False,
        **headers: str,
    ) -> None:
        """Answers the next requests that match with a status. Status 0 closes the connection.

        With `lost`, an object is created nevertheless.
        """
        self.faults += [(method, path, status, body or {}, headers, lost)] * times

    def count(self, method: str, path: str, **query: str) -> int:
        matches = (r for r in self.requests if r[0] == method and re.fullmatch(path, r[1]))
        return sum(all(r[2].get(k) == v for k, v in query.items()) for r in matches)

    def put(self, plural: str, namespace: str, item: JSON, kind: str = "") -> JSON:
        """Stores an object, as another client would."""
        with self.changed:
            name = item["metadata"]["name"]
            known = self.objects.get((plural, namespace, name))
            item = copy.deepcopy(item)
            self.version += 1
            meta = item["metadata"]
            meta.setdefault("uid", known["metadata"]["uid"] if known else str(uuid.uuid4()))
            meta.update(namespace=namespace, resourceVersion=str(self.version))
            meta.setdefault("creationTimestamp", "2026-01-02T03:04:05Z")
            self.objects[plural, namespace, name] = item
            self._event(kind or ("MODIFIED" if known else "ADDED"), plural, namespace, item)
            return item

    def status(self, name: str, namespace: str = "default", plural: str = "trainjobs", **status: Any) -> None:
        item = copy.deepcopy(self.objects[plural, namespace, name])
        item["status"] = {**item.get("status", {}), **status}
        self.put(plural, namespace, item)

    def delete(self, plural: str, namespace: str, name: str) -> JSON:
        with self.changed:
            item = self.objects.pop((plural, namespace, name))
            self.version += 1
            item["metadata"]["resourceVersion"] = str(self.version)
            self._event("DELETED", plural, namespace, item)
            return item

    def forget(self) -> None:
        """Removes all events: watches that have not sent them end with an error."""
        with self.changed:
            self.history.clear()
            self.forgotten = self.version
            self.changed.notify_all()

    def log(self, pod: str, *lines: str, end: bool = False) -> None:
        with self.changed:
            self.logs.setdefault(pod, []).extend(lines)
            if end:
                self.ended_logs.add(pod)
            self.changed.notify_all()

    def cut(self, pod: str, after: int, clean: bool = False) -> None:
        """Ends a stream of the pod's log after so many lines, as a restart of the API server does."""
        self.cuts.append((pod, after, clean))

    def _event(self, kind: str, plural: str, namespace: str, item: JSON) -> None:
        self.history.append((self.version, kind, plural, namespace, copy.deepcopy(item)))
        self.changed.notify_all()


def selected(item: JSON, query: dict[str, str]) -> bool:
    labels = item["metadata"].get("labels", {})
    for pair in filter(None, query.get("labelSelector", "").split(",")):
        key, found, value = pair.partition("=")
        if key not in labels or (found and labels[key] != value):
            return False
    field = query.get("fieldSelector", "")
    return not field or field == f"metadata.name={item['metadata']['name']}"


class _Handler(BaseHTTPRequestHandler):
    fake: FakeAPI
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, status: int, body: JSON | bytes, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _error(self, status: int, reason: str, message: str) -> None:
        self._answer(status, {"kind": "Status", "reason": reason, "message": message, "code": status})

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        self.fake.bodies.append(body)
        self.fake.requests.append((self.command, parts.path, query))
        for index, (method, path, status, answer, headers, lost) in enumerate(self.fake.faults):
            watch = query.get("watch") == "true"
            if (method == self.command or (method == "WATCH" and watch)) and re.fullmatch(path, parts.path):
                del self.fake.faults[index]
                if lost:
                    _, namespace, plural, _, _ = PLURALS.match(parts.path).groups()
                    self.fake.put(plural, namespace, body)
                if status == 0:
                    self.close_connection = True
                    return
                return self._answer(status, answer, **headers)
        match = PLURALS.match(parts.path)
        assert match, parts.path
        group, namespace, plural, name, part = match.groups()
        if "metrics.k8s.io" in group:
            plural = "podmetrics"
        namespace = namespace or ""
        if part == "log":
            return self._log(name, query)
        if part == "exec":
            return self._exec(parse_qs(parts.query)["command"])
        if plural == "selfsubjectaccessreviews":
            return self._answer(201, {"status": {"allowed": self.fake.allowed}})
        if self.command == "POST":
            return self._create(plural, namespace, body, query)
        if query.get("watch") == "true":
            return self._watch(plural, namespace, query)
        if name is None:
            return self._list(plural, namespace, query)
        item = self.fake.objects.get((plural, namespace, name))
        if item is None:
            return self._error(404, "NotFound", f"{plural} {name} not found")
        if self.command == "DELETE":
            item = self.fake.delete(plural, namespace, name)
        return self._answer(200, item)

    do_GET = do_POST = do_DELETE = do_PATCH = _serve  # noqa: N815

    def _create(self, plural: str, namespace: str, body: JSON, query: dict[str, str]) -> None:
        if (plural, namespace, body["metadata"]["name"]) in self.fake.objects:
            return self._error(409, "AlreadyExists", "exists")
        if query.get("dryRun") != "All":
            body = self.fake.put(plural, namespace, body)
        self._answer(201, body)

    def _list(self, plural: str, namespace: str, query: dict[str, str]) -> None:
        with self.fake.changed:
            items = [
                item
                for (p, n, _), item in sorted(self.fake.objects.items())
                if p == plural and namespace in ("", n) and selected(item, query)
            ]
            version = str(self.fake.version)
        start, limit = int(query.get("continue", 0)), int(query.get("limit", 10_000))
        metadata = {"resourceVersion": version}
        if start + limit < len(items):
            metadata["continue"] = str(start + limit)
        self._answer(200, {"metadata": metadata, "items": items[start : start + limit]})

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _watch(self, plural: str, namespace: str, query: dict[str, str]) -> None:
        self._begin()
        seen = int(query["resourceVersion"])
        deadline = time.monotonic() + int(query["timeoutSeconds"])
        try:
            while True:
                with self.fake.changed:
                    new = [e for e in self.fake.history if e[0] > seen and e[2] == plural and namespace in ("", e[3])]
                    expired = seen < self.fake.forgotten
                    if not new and not expired and not self.fake.closing:
                        self.fake.changed.wait(0.5)
                if expired:
                    self._chunk(json.dumps({"type": "ERROR", "object": {"code": 410}}).encode() + b"\n")
                    return self._chunk(b"")
                for version, kind, _, _, item in new:
                    seen = version
                    if selected(item, query):
                        self._chunk(json.dumps({"type": kind, "object": item}).encode() + b"\n")
                if self.fake.closing or time.monotonic() > deadline:
                    return self._chunk(b"")
        except OSError:
            self.close_connection = True

    def _log(self, pod: str, query: dict[str, str]) -> None:
        if pod not in self.fake.logs and ("pods", "default", pod) not in self.fake.objects:
            return self._error(404, "NotFound", f"pod {pod} not found")
        stamped = query.get("timestamps") == "true"

        def text(index: int, line: str) -> bytes:
            return f"{stamp(index)} {line}\n".encode() if stamped else f"{line}\n".encode()

        def lines_from(start: int) -> list[tuple[int, str]]:
            lines = list(enumerate(self.fake.logs.get(pod, [])))[start:]
            since = query.get("sinceTime", "")
            return [(index, line) for index, line in lines if stamp(index)[:19] >= since[:19]]

        if "follow" not in query:
            lines = lines_from(0)[-int(query.get("tailLines", 10_000)) :]
            return self._answer(200, b"".join(text(*pair) for pair in lines))
        self._begin()
        sent = 0
        try:
            while True:
                with self.fake.changed:
                    lines = lines_from(sent)
                    over = pod in self.fake.ended_logs or self.fake.closing
                    if not lines and not over:
                        self.fake.changed.wait(0.5)
                for index, line in lines:
                    sent = index + 1
                    self._chunk(text(index, line))
                    for cut in [c for c in self.fake.cuts if c[:2] == (pod, sent)][:1]:
                        self.fake.cuts.remove(cut)
                        self.close_connection = True
                        return self._chunk(b"") if cut[2] else None
                if over and not lines:
                    return self._chunk(b"")
        except OSError:
            self.close_connection = True

    def _exec(self, command: list[str]) -> None:
        """Runs a command here, with a WebSocket as its input and output."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Protocol", self.headers["Sec-WebSocket-Protocol"])
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.close_connection = True
        process = subprocess.Popen(
            self.fake.commands(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **self.fake.environment},
        )
        threads = [threading.Thread(target=self._copy_output, args=(process, channel)) for channel in (1, 2)]
        for thread in threads:
            thread.start()
        input_thread = threading.Thread(target=self._copy_input, args=(process,), daemon=True)
        input_thread.start()
        for thread in threads:
            thread.join()
        code = process.wait()
        end = {"status": "Failure" if code else "Success", "message": f"exit code {code}"}
        with contextlib.suppress(OSError):
            self._message(bytes([3]) + json.dumps(end).encode())
        input_thread.join()

    def _copy_output(self, process: subprocess.Popen[bytes], channel: int) -> None:
        stream = process.stdout if channel == 1 else process.stderr
        with contextlib.suppress(OSError), stream:
            while data := os.read(stream.fileno(), 1 << 16):
                self._message(bytes([channel]) + data)

    def _message(self, data: bytes) -> None:
        size = len(data)
        head = (
            bytes([0x82, size])
            if size < 126
            else struct.pack(">BBH" if size < 1 << 16 else ">BBQ", 0x82, 126 if size < 1 << 16 else 127, size)
        )
        with self.fake.changed:
            self.wfile.write(head + data)

    def _copy_input(self, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError, struct.error), process.stdin:
            while True:
                first, size = struct.unpack(">BB", self.rfile.read(2))
                size &= 127
                if size > 125:
                    (size,) = struct.unpack(">H" if size == 126 else ">Q", self.rfile.read(2 if size == 126 else 8))
                mask = self.rfile.read(4)
                data = self.rfile.read(size)
                if first & 15 == 8:
                    return
                plain = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
                process.stdin.write(plain[1:])
                process.stdin.flush()


def stamp(index: int) -> str:
    """Returns the time of a line. Two lines each have the same, and four the same second."""
    return f"2026-01-02T03:04:{index // 4 % 60:02d}.{index // 2:09d}Z"
