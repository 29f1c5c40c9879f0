# SPDX-License-Identifier: Apache-2.0
"""Runs a function on one rank, from the payload that the client sent. It runs in pods.

Only the standard library, and syntax of Python 3.7: an interpreter that cannot run the function must
be able to say so.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import socket
import struct
import sys
import tempfile
import termios
import time
import traceback
import zipfile
from typing import Any, Dict, Optional

from trireme import _launcher, _results
from trireme._progress import rank

# Exit codes of sysexits.h: the payload cannot be used here; the function failed.
EX_CONFIG = 78
FAILED = 1
# How long a reader of the output may take before the next line is sent anyway.
DRAIN_SECONDS = 2.0


class Sender:
    """Sends the outcome of this rank."""

    def __init__(self, settings: Dict[str, Any], key: bytes) -> None:
        self.settings = settings
        self.key = key

    def send(self, header: Dict[str, Any], value: bytes = b"") -> None:
        header = dict(header, host=socket.gethostname(), size=len(value))
        sys.stdout.flush()
        sys.stderr.flush()
        # Open MPI gives ranks a terminal as stdout and a pipe as stderr. Only of a pipe, a writer can
        # know what was read.
        output = 2 if os.isatty(1) and not os.isatty(2) else 1
        # mpirun forwards what one read returns: a line that ended in the middle of it would be mixed
        # with other ranks' lines. Each line is sent alone, once the one before has been read.
        for line in _results.lines(self.key, self.settings["run"], rank(), header, value):
            _drain(output)
            _write(output, line.encode())
        _drain(output)


def _write(output: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(output, data) :]
        except BlockingIOError:
            time.sleep(0.001)


def _drain(output: int) -> None:
    """Waits until the reader of a pipe has read everything."""
    deadline = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < deadline:
        try:
            (waiting,) = struct.unpack("i", fcntl.ioctl(output, termios.FIONREAD, b"\0" * 4))
        except OSError:
            return
        if not waiting:
            return
        time.sleep(0.0005)


def _versions(minor: Any) -> str:
    return "{}.{}".format(*minor)


class Payload:
    """The files that the client sent: in a folder, or for a call of an allocation in an archive."""

    def __init__(self, folder: str, call: Optional[str] = None) -> None:
        self.folder = folder
        self._archive = zipfile.ZipFile(call) if call else None

    def read(self, name: str) -> bytes:
        if self._archive:
            return self._archive.read(name)
        with open(os.path.join(self.folder, name), "rb") as file:
            return file.read()

    def key(self) -> bytes:
        """Returns the key of the run or of the allocation, which is never part of a call."""
        with open(os.path.join(self.folder, "key"), "rb") as file:
            return file.read()

    def has(self, name: str) -> bool:
        if self._archive:
            return name in self._archive.namelist()
        return os.path.exists(os.path.join(self.folder, name))


def run(payload: Payload) -> int:
    """Runs the function of the payload, and returns the exit code of this rank."""
    settings = json.loads(payload.read("run.json").decode())
    sender = Sender(settings, payload.key())
    # Pickled functions contain bytecode, which differs between minor versions of Python.
    if list(sys.version_info[:2]) != settings["python"]:
        here, there = _versions(sys.version_info[:2]), _versions(settings["python"])
        if rank() == 0:
            sender.send({"outcome": "python", "here": here, "there": there})
            message = "trireme: the image has Python %s, the function was sent by Python %s"
            print(message % (here, there), file=sys.stderr, flush=True)
        return EX_CONFIG
    directory = _unpack_code(payload)
    try:
        return _call(payload, settings, sender)
    finally:
        if directory:
            os.chdir("/")
            shutil.rmtree(directory, ignore_errors=True)


def _unpack_code(payload: Payload) -> Optional[str]:
    """Unpacks the code that was sent, and makes it the working directory and the first place of imports."""
    if not payload.has("code.zip"):
        return None
    directory = tempfile.mkdtemp(prefix="trireme-code-")
    with zipfile.ZipFile(io.BytesIO(payload.read("code.zip"))) as code:
        code.extractall(directory)
    os.chdir(directory)
    sys.path.insert(0, directory)
    return directory


def _call(payload: Payload, settings: Dict[str, Any], sender: Sender) -> int:
    import cloudpickle

    try:
        function, args, kwargs = cloudpickle.loads(payload.read("function.pkl"))
        result = function(*args, **kwargs)
        value = cloudpickle.dumps(result)
    except SystemExit as error:
        if error.code in (None, 0):
            sender.send({"outcome": "result"}, cloudpickle.dumps(None))
            return 0
        _send_exception(sender, error)
        return error.code if isinstance(error.code, int) else FAILED
    except BaseException as error:
        _send_exception(sender, error)
        return FAILED
    if len(value) > settings["limit"]:
        too_large = ValueError(
            "the result of rank %d has %d bytes, and at most %d are sent back: write it to a volume "
            "(volumes=, volume_mounts=) and return its path"
            % (rank(), len(value), settings["limit"])
            + (", or raise max_result_bytes to %d" % len(value) if len(value) <= settings["most"] else "")
        )
        _send_exception(sender, too_large)
        return FAILED
    sender.send({"outcome": "result"}, value)
    return 0


def _send_exception(sender: Sender, error: BaseException) -> None:
    import cloudpickle

    text = _traceback(error)
    try:
        value = cloudpickle.dumps(error)
    except Exception:
        value = b""
    if len(value) > sender.settings["limit"]:
        value = b""
    header = {
        "outcome": "exception",
        "type": type(error).__name__,
        "message": str(error)[:2000],
        "traceback": text[-20000:],
    }
    sender.send(header, value)
    # For the log, and for the operator's diagnosis of the job.
    sys.stderr.write(text)
    sys.stderr.flush()


def _traceback(error: BaseException) -> str:
    """Returns the traceback, without the frames of this file."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    output = io.StringIO()
    traceback.print_exception(type(error), error, frames, file=output)
    return output.getvalue()


def main() -> None:
    # Each line is one write, also with PYTHONUNBUFFERED: mpirun would mix parts of lines with those of
    # other ranks.
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
    # The archive that Python was started with is in the folder of the payload.
    folder, arguments = os.path.dirname(os.path.abspath(sys.argv[0])), sys.argv[1:]
    if arguments[:1] == ["serve"]:
        sys.exit(_launcher.serve(folder, arguments[1:]))
    if arguments[:1] == ["call"]:
        # Its thread may wait for input.
        os._exit(_launcher.call())
    code = run(Payload(folder, arguments[1] if arguments[:1] == ["rank"] else None))
    sys.stdout.flush()
    sys.stderr.flush()
    if code:
        # Without MPI_Finalize, in which it would wait for the other ranks: mpirun then ends them.
        os._exit(code)


if __name__ == "__main__":
    main()
