# SPDX-License-Identifier: Apache-2.0
"""The package as users install it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import warnings
import zipfile
from pathlib import Path

import pytest

import trireme

PACKAGE = Path(__file__).parent.parent


def test_wheel_and_sdist(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(PACKAGE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    assert wheel.name == f"trireme-{trireme.__version__}-py3-none-any.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"trireme/py.typed", "trireme/_runner.py", "trireme/training/testing.py"} <= names
    # No module of Kubeflow's, which would replace its own.
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"trireme"}
    with tarfile.open(sdist) as archive:
        assert any(name.endswith("/pyproject.toml") for name in archive.getnames())


def test_types_of_run(tmp_path: Path) -> None:
    """What mypy knows about the result of run()."""
    (tmp_path / "user.py").write_text(
        "from trireme import Client\n"
        "client = Client()\n"
        "reveal_type(client.run(print))\n"
        "reveal_type(client.run(print, 1, nodes=2, preflight=True, slots=2))\n"
        "reveal_type(client.jobs())\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "user.py"]
    environment = {**os.environ, "MYPYPATH": str(PACKAGE / "src")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    for line, kind in ((3, "job.Job | trireme._local.LocalJob"), (4, "run.Plan"), (5, "job.RunList")):
        assert f'user.py:{line}: note: Revealed type is "trireme.{kind}"' in done.stdout


@pytest.mark.parametrize("path", sorted((PACKAGE / "src").rglob("*.py")), ids=lambda path: path.name)
def test_no_warnings_at_import(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile(path.read_text(), str(path), "exec")


def test_import_is_light() -> None:
    """Pods have no packages: importing trireme must need none."""
    code = f"import sys; sys.path.insert(0, {str(PACKAGE / 'src')!r}); import trireme; trireme.report(step=1)"
    python = [sys.executable, "-I", "-S", "-c"]
    done = subprocess.run([*python, code], capture_output=True, text=True, check=False)
    assert done.stdout == 'trireme: {"step": 1}\n', done.stderr
    done = subprocess.run([*python, code + "; trireme.Client"], capture_output=True, text=True, check=False)
    assert "trireme.Client cannot be used in the pods of a job" in done.stderr
