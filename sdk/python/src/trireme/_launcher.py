# SPDX-License-Identifier: Apache-2.0
"""Runs the calls of an allocation, one after the other. It runs in the launcher of the allocation.

The client executes `call` in the launcher's container: it sends a call on its standard input, and gets
the output on its standard output. `call` only connects to `serve`, which starts mpirun for each call.
Only the standard library, and syntax of Python 3.7, as in `_runner`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, Dict, List, Optional

from trireme._results import is_result

# What the server sends: a kind, the number of bytes, and the bytes.
FRAME = struct.Struct(">cI")
OUTPUT, HEARTBEAT, END = b"o", b"h", b"e"
# What the client sends: the number of bytes of a call, the call, and a byte for each heartbeat.
LENGTH = struct.Struct(">Q")

HEARTBEAT_SECONDS = 5.0
# A client that is silent for so long is lost, and its call ends.
LOST_SECONDS = 60.0
# How long the server may take to start after its container.
CONNECT_SECONDS = 60.0
STOP_SECONDS = 10.0
PARALLEL_COPIES = 64
MAX_LINE = 1 << 20
# A harmless warning of Open MPI, which Trireme also removes from the logs of other jobs.
NOISE = re.compile(
    rb"^\[[^\]\n]+\] plm:(?:rsh|ssh): Warning: setpgid\(\d+,\d+\) failed in parent with errno=[^\n]*\(13\)\n"
)
EX_UNAVAILABLE = 69
# Workers write calls there, too: it must not depend on the variables of one pod.
CALL_PREFIX = "/tmp/trireme-call-"


class ClientLost(Exception):
    """The client of a call has closed its connection, or is silent."""


def socket_path() -> str:
    return os.path.join(tempfile.gettempdir(), "trireme-ranks", "socket")


def serve(folder: str, flags: List[str]) -> int:
    """Runs calls until there was none for the idle time. `flags` are those of mpirun."""
    with open(os.path.join(folder, "run.json")) as file:
        settings = json.load(file)
    # SystemExit ends mpirun before the launcher exits.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    path = socket_path()
    directory, starting = os.path.dirname(path), os.path.dirname(path) + ".starting"
    os.mkdir(starting, mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.join(starting, os.path.basename(path)))
        listener.listen(1)
        listener.settimeout(settings["idle"])
        # From now on, the directory tells that the server has started.
        os.rename(starting, directory)
        print("trireme: waiting for calls", flush=True)
        try:
            while True:
                connection, _ = listener.accept()
                with connection:
                    _serve(connection, folder, settings["mpirun"] + flags)
        except socket.timeout:
            print("trireme: no call for %d s, ending the allocation" % settings["idle"], flush=True)
            return 0
        finally:
            os.unlink(path)


def _serve(connection: socket.socket, folder: str, mpirun: List[str]) -> None:
    connection.settimeout(LOST_SECONDS)
    path = CALL_PREFIX + uuid.uuid4().hex
    try:
        with connection.makefile("rb") as reader:
            _copy(path, _read(reader, LENGTH.unpack(_read(reader, LENGTH.size))[0]))
        end: Dict[str, Any] = {"code": _run(connection, [*mpirun, *_rank(folder, path)])}
    except ClientLost:
        print("trireme: the client has ended the call", flush=True)
        return
    except (OSError, subprocess.SubprocessError) as error:
        end = {"code": EX_UNAVAILABLE, "error": str(error)}
    finally:
        if os.path.exists(path):
            os.unlink(path)
    with contextlib.suppress(ClientLost):
        _send(connection, END, json.dumps(end).encode())


def _rank(folder: str, call: str) -> List[str]:
    return ["python3", os.path.join(folder, "run.pyz"), "rank", call]


def _read(reader: BinaryIO, size: int) -> bytes:
    try:
        data = reader.read(size)
    except OSError as error:
        raise ClientLost from error
    if len(data) < size:
        raise ClientLost
    return data


def hosts() -> List[str]:
    """Returns the hosts of the hostfile without this one."""
    here = socket.gethostname().partition(".")[0]
    with open(os.environ.get("TRIREME_HOSTFILE", "/etc/mpi/hostfile")) as file:
        names = [line.split()[0].partition(":")[0] for line in file if line.strip() and not line.startswith("#")]
    return [name for name in names if name.partition(".")[0] != here]


def _copy(path: str, content: bytes) -> None:
    """Writes a call to a file here and on every worker, with the logins that mpirun uses."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    # Calls before this one are over.
    command = "rm -f %s*; umask 077; cat >%s" % (CALL_PREFIX, path)

    def copy(host: str) -> None:
        done = subprocess.run(
            ["ssh", host, command], input=content, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        if done.returncode:
            output = done.stdout.decode(errors="replace").strip()
            raise OSError("cannot send the call to worker %s: exit code %d: %s" % (host, done.returncode, output))

    with ThreadPoolExecutor(PARALLEL_COPIES) as pool:
        list(pool.map(copy, hosts()))


def _run(connection: socket.socket, command: List[str]) -> int:
    """Runs a command, sends its output, and returns its exit code. It ends the command if the client is lost."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        _relay(connection, process)
        return process.wait(STOP_SECONDS)
    finally:
        _stop(process)


def _relay(connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """Sends the lines of a command's output, and observes the client."""
    assert process.stdout and process.stderr
    # One of each: mpirun may write parts of lines to one of them while the other one is full.
    rests = {process.stdout.fileno(): b"", process.stderr.fileno(): b""}
    heard = beat = time.monotonic()
    with process.stdout, process.stderr, selectors.DefaultSelector() as selector:
        for descriptor in [*rests, connection.fileno()]:
            selector.register(descriptor, selectors.EVENT_READ)
        while rests:
            ready = [key.fd for key, _ in selector.select(HEARTBEAT_SECONDS)]
            now = time.monotonic()
            if connection.fileno() in ready:
                _hear(connection)
                heard = now
            for descriptor in [fd for fd in ready if fd in rests]:
                data = os.read(descriptor, 1 << 16)
                rests[descriptor] = _forward(connection, rests[descriptor] + data, is_last=not data)
                if not data:
                    selector.unregister(descriptor)
                    del rests[descriptor]
            if now - heard > LOST_SECONDS:
                raise ClientLost
            if now - beat >= HEARTBEAT_SECONDS:
                _send(connection, HEARTBEAT)
                beat = now
            # A process that a rank left behind may keep the pipes open.
            if not ready and process.poll() is not None:
                return


def _hear(connection: socket.socket) -> None:
    try:
        data = connection.recv(4096)
    except OSError as error:
        raise ClientLost from error
    if not data:
        raise ClientLost


def _forward(connection: socket.socket, data: bytes, is_last: bool) -> bytes:
    """Sends the complete lines, and returns the rest. The log gets all but results, which only the client needs."""
    lines, rest = data[: data.rfind(b"\n") + 1], data[data.rfind(b"\n") + 1 :]
    if is_last or len(rest) > MAX_LINE:
        lines, rest = lines + rest + (b"\n" if rest else b""), b""
    kept = [line for line in lines.splitlines(keepends=True) if not NOISE.match(line)]
    if kept:
        _send(connection, OUTPUT, b"".join(kept))
    for line in kept:
        if not is_result(line.decode(errors="replace")):
            sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
    return rest


def _send(connection: socket.socket, kind: bytes, data: bytes = b"") -> None:
    try:
        connection.sendall(FRAME.pack(kind, len(data)) + data)
    except OSError as error:
        raise ClientLost from error


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def call() -> int:
    """Connects standard input and output to the server."""
    connection = _connect(time.monotonic() + CONNECT_SECONDS)
    if connection is None:
        print("trireme: the allocation does not wait for calls", file=sys.stderr)
        return EX_UNAVAILABLE
    threading.Thread(target=_send_input, args=(connection,), daemon=True).start()
    while True:
        data = connection.recv(1 << 16)
        if not data:
            return 0
        while data:
            data = data[os.write(1, data) :]


def _connect(deadline: float) -> Optional[socket.socket]:
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(socket_path())
            return connection
        except OSError:
            connection.close()
            has_ended = os.path.isdir(os.path.dirname(socket_path()))
            if has_ended or time.monotonic() > deadline:
                return None
            time.sleep(0.05)


def _send_input(connection: socket.socket) -> None:
    """Sends standard input. Its end is the end of the client: the server then ends the call."""
    with contextlib.suppress(OSError):
        while True:
            data = os.read(0, 1 << 16)
            if not data:
                break
            connection.sendall(data)
        connection.shutdown(socket.SHUT_RDWR)
