# SPDX-License-Identifier: Apache-2.0
"""What a run sends to its pods: the function, its arguments, the user's code, and what runs them."""

from __future__ import annotations

import contextlib
import fnmatch
import io
import json
import os
import secrets
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

import trireme
from trireme import errors

# A Secret has at most 1 MiB, which also has to be enough for the other objects of etcd's request.
MAX_BYTES = 700 << 10
# A call of an allocation travels by a connection. Launcher and workers keep it in their /tmp, which may be memory.
MAX_CALL_BYTES = 32 << 20
# A file of this size is data, not code.
MAX_UNPACKED_BYTES = 32 << 20
# The part of this package that pods need. It has only the standard library's dependencies.
RUNNER_MODULES = ("__init__.py", "_launcher.py", "_progress.py", "_results.py", "_runner.py")
# Files that programs never need, and that may hold secrets of the user.
EXCLUDED = (".*", "__pycache__", "*.pyc", "*.egg-info", "node_modules", "venv", "wandb", "mlruns")
MAIN = "from trireme._runner import main\nmain()\n"


@dataclass(frozen=True)
class Payload:
    """The files of a run, by name, and what is needed to read its results."""

    run: str
    key: bytes
    files: dict[str, bytes]

    @property
    def size(self) -> int:
        return sum(len(content) for content in self.files.values())


def payload(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    code: str | os.PathLike[str] | None,
    max_result_bytes: int,
    highest_max_result_bytes: int = 0,
) -> Payload:
    """Packs a call. Closures and globals of the function are part of it."""
    run, key = secrets.token_hex(8), secrets.token_bytes(32)
    files = {"run.pyz": runner(), "key": key}
    files |= _call_files(run, function, args, kwargs, code, max_result_bytes, highest_max_result_bytes, MAX_BYTES)
    packed = Payload(run, key, files)
    _check_size(files, code, MAX_BYTES)
    return packed


# Trireme starts a program of this name as it is. Another one it would start on every rank.
MPIRUN = """#!/bin/sh
# Starts the real mpirun for each call.
exec python3 "${0%/*}/run.pyz" serve "$@"
"""


def allocation(mpirun: list[str], max_idle_seconds: int) -> Payload:
    """Packs what an allocation needs before its first call. `mpirun` is the command without its flags."""
    run, key = secrets.token_hex(8), secrets.token_bytes(32)
    settings = {"idle": max_idle_seconds, "mpirun": mpirun}
    files = {"run.pyz": runner(), "key": key, "run.json": json.dumps(settings).encode(), "mpirun": MPIRUN.encode()}
    return Payload(run, key, files)


def call(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    code: str | os.PathLike[str] | None,
    max_result_bytes: int,
    highest_max_result_bytes: int,
) -> tuple[str, bytes]:
    """Packs a call of an allocation: the identity of the call, and an archive."""
    run = secrets.token_hex(8)
    files = _call_files(run, function, args, kwargs, code, max_result_bytes, highest_max_result_bytes, MAX_CALL_BYTES)
    _check_size(files, code, MAX_CALL_BYTES)
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return run, output.getvalue()


def _call_files(
    run: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    code: str | os.PathLike[str] | None,
    max_result_bytes: int,
    highest_max_result_bytes: int,
    max_bytes: int,
) -> dict[str, bytes]:
    settings = {"run": run, "python": sys.version_info[:2], "limit": max_result_bytes, "most": highest_max_result_bytes}
    files = {"run.json": json.dumps(settings).encode(), "function.pkl": pickled(function, args, kwargs, code)}
    if code is not None:
        files["code.zip"] = zipped(Path(code), max_bytes)
    return files


def _check_size(files: dict[str, bytes], code: str | os.PathLike[str] | None, max_bytes: int) -> None:
    size = sum(len(content) for content in files.values())
    if size > max_bytes:
        parts = ", ".join(f"{name} {len(content) >> 10} KiB" for name, content in sorted(files.items()))
        raise errors.PayloadTooLargeError(
            "code" if code is not None else "func",
            f"function, arguments and code have {size >> 10} KiB ({parts}); the limit is {max_bytes >> 10} KiB",
            remedy="Put large data and code in a volume or in the image, and let the function read it from there",
        )


def pickled(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    code: str | os.PathLike[str] | None,
) -> bytes:
    with by_value(sys.modules.get(getattr(function, "__module__", None) or ""), code):
        try:
            return bytes(cloudpickle.dumps((function, args, kwargs)))
        except Exception as error:
            name = getattr(function, "__name__", repr(function))
            raise errors.ValidationError(
                "func",
                f"{name}, its closure or its arguments cannot be pickled: {error}",
                remedy="Create connections, locks and open files inside of the function",
            ) from error


@contextlib.contextmanager
def by_value(module: ModuleType | None, code: str | os.PathLike[str] | None) -> Iterator[None]:
    """Sends the function's module with it, unless pods have the module: from an image or from `code`."""
    file = getattr(module, "__file__", None)
    if (
        module is None
        or file is None
        or module.__name__ == "__main__"
        or is_installed(Path(file))
        or (code is not None and Path(file).resolve().is_relative_to(Path(code).resolve()))
        or module.__name__ in cloudpickle.list_registry_pickle_by_value()
    ):
        yield
    else:
        cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            cloudpickle.unregister_pickle_by_value(module)


def is_installed(file: Path) -> bool:
    """Whether a module is part of Python or of an installed package."""
    paths = {
        Path(path).resolve() for name, path in sysconfig.get_paths().items() if name in ("stdlib", "purelib", "platlib")
    }
    return any(file.resolve().is_relative_to(path) for path in paths)


def runner() -> bytes:
    """Returns an archive that Python can run, with cloudpickle and the part of trireme that pods need."""
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", MAIN)
        own = Path(trireme.__file__).parent
        for name in RUNNER_MODULES:
            archive.write(own / name, f"trireme/{name}")
        pickle = Path(cloudpickle.__file__).parent
        for path in sorted(pickle.glob("*.py")):
            archive.write(path, f"cloudpickle/{path.name}")
    return output.getvalue()


def zipped(folder: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Returns a folder as archive, without hidden files and what pods never need."""
    if not folder.is_dir():
        raise errors.ValidationError("code", f"{folder} is not a folder")
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for directory, names, files in os.walk(folder):
            names[:] = sorted(name for name in names if not is_excluded(name))
            for name in sorted(files):
                path = Path(directory, name)
                if is_excluded(name) or not path.is_file():
                    continue
                # Stop early: a home folder would take minutes.
                large = path.stat().st_size > MAX_UNPACKED_BYTES
                if not large:
                    archive.write(path, path.relative_to(folder))
                if large or output.tell() > max_bytes:
                    raise errors.PayloadTooLargeError(
                        "code",
                        f"{folder} has more than {max_bytes >> 10} KiB, compressed, at {path.relative_to(folder)}",
                        remedy="Choose a folder with only the code, and put data in a volume or in the image",
                    )
    return output.getvalue()


def is_excluded(name: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in EXCLUDED)
