# SPDX-License-Identifier: Apache-2.0
"""Runs a function under mpirun on this machine, with the payload that pods get."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from trireme import display, errors
from trireme._models import TrainJob, TrainJobStatus
from trireme._objects import ObjectMeta
from trireme._outcomes import Curve, Results, rank_failure
from trireme._payload import Payload
from trireme._results import Collector, is_result
from trireme.training.client import Environment, environment


class LocalJob:
    """A function that runs, or ran, on ranks of this machine."""

    namespace = "this machine"

    def __init__(self, packed: Payload, ranks: int, env: Environment | None = None) -> None:
        mpirun, variables = mpirun_path(), variables_of(env)
        self.name = f"local-{packed.run}"
        self._ranks = ranks
        self._collector = Collector(packed.key, packed.run)
        self._folder = tempfile.TemporaryDirectory(prefix="trireme-run-")
        for name, content in packed.files.items():
            path = Path(self._folder.name, name)
            path.touch(mode=0o600)
            path.write_bytes(content)
        command = [
            mpirun,
            *_flags(mpirun),
            "-np",
            str(ranks),
            sys.executable,
            str(Path(self._folder.name, "run.pyz")),
        ]
        self._lines: list[str] = []
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **variables},
        )
        self._progress: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, name="trireme-local", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        with self._process.stdout as output:
            for raw in output:
                line = raw.rstrip("\r\n")
                if is_result(line):
                    self._collector.feed(line)
                    continue
                if report := display.report_of(line):
                    self._progress.append(report)
                self._lines.append(line)

    @property
    def status(self) -> TrainJobStatus:
        """The phase: Running, Succeeded or Failed."""
        if self._reader.is_alive():
            return TrainJobStatus(phase="Running")
        return TrainJobStatus(phase="Failed" if self._process.wait() else "Succeeded")

    def _job(self) -> TrainJob:
        return TrainJob(metadata=ObjectMeta(name=self.name, namespace=self.namespace), status=self.status)

    def follow(self, output: display.Display | None = None) -> LocalJob:
        """Shows progress and output until the run has finished. Ctrl-C ends the run."""
        shown = output or display.current_display()
        at = 0
        try:
            shown.job(self._job())
            while True:
                alive = self._reader.is_alive()
                while at < len(self._lines):
                    rank, content = display.split_rank(self._lines[at])
                    report = display.report_of(self._lines[at])
                    if report:
                        shown.progress(report)
                    else:
                        shown.line(rank, content)
                    at += 1
                if not alive:
                    shown.job(self._job())
                    return self
                self._reader.join(0.05)
        except KeyboardInterrupt:
            self._process.terminate()
            raise
        finally:
            shown.close()

    def wait(self, timeout: float | None = None) -> LocalJob:
        """Waits until the run has finished."""
        self._reader.join(timeout)
        if self._reader.is_alive():
            raise errors.WaitTimeoutError(f"{self.name} has not finished within {timeout:g} s", reason="Timeout")
        self._process.wait()
        self._folder.cleanup()
        return self

    def results(self, timeout: float | None = None) -> list[Any]:
        """Returns what the function returned, in the order of the ranks, or raises JobFailed."""
        self.wait(timeout)
        results = Results(self._collector, self.name)
        outcome = results.failure()
        if outcome:
            raise rank_failure(outcome, self.name, "of this machine", TrainJobStatus())
        if self._process.returncode:
            raise errors.JobFailed(
                f"mpirun exited with code {self._process.returncode}",
                self.logs(),
                reason="TrainingError",
                last_lines=[display.split_rank(line)[1] for line in self._lines[-5:]],
            )
        return results.values(self._ranks)

    def logs(self) -> str:
        """Returns the output of mpirun and of the ranks."""
        return "".join(line + "\n" for line in self._lines)

    def curve(self) -> Curve:
        """Returns what the function has reported: `job.curve().to_frame()`."""
        return Curve(self._progress)

    def _repr_html_(self) -> str:
        return display.job_html(self._job(), self._progress[-1] if self._progress else None)

    def __repr__(self) -> str:
        return f"<trireme.LocalJob {self.name}: {self.status.phase}>"

    def delete(self) -> None:
        """Ends the run."""
        self._process.terminate()
        self.wait()


def mpirun_path() -> str:
    """Returns the mpirun of this machine."""
    mpirun = shutil.which("mpirun")
    if not mpirun:
        raise errors.ValidationError(
            "local", "mpirun is not on the PATH", remedy="Install Open MPI, MPICH or Intel MPI"
        )
    return mpirun


def variables_of(env: Environment | None) -> dict[str, str]:
    """Returns the variables of a run on this machine."""
    variables = environment(env) or []
    for variable in variables:
        if "valueFrom" in variable:
            raise errors.ValidationError("env", f"{variable['name']} has valueFrom, which needs a cluster")
    return {variable["name"]: variable.get("value", "") for variable in variables}


def _flags(mpirun: str) -> list[str]:
    """Returns the flags that start any number of ranks here, and tag lines with their rank."""
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False).stdout
    if "Open MPI" not in version and "open-mpi" not in version and "PRRTE" not in version:
        return ["-prepend-rank"] if "Intel" in version or "HYDRA" in version else []
    # Containers and notebooks often run as root, and have fewer cores than ranks.
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [*root, "--oversubscribe", "--tag-output"]
