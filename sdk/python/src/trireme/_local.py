# SPDX-License-Identifier: Apache-2.0
"""Runs a function under mpirun on this machine, with the payload that pods get."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trireme import display, errors
from trireme._models import TrainJobStatus
from trireme._payload import Payload
from trireme._results import Collector, is_result


class LocalJob:
    """A function that runs, or ran, on ranks of this machine."""

    def __init__(self, packed: Payload, ranks: int, env: Any = None) -> None:
        mpirun = shutil.which("mpirun")
        if not mpirun:
            raise errors.ValidationError(
                "local", "mpirun is not on the PATH", remedy="Install Open MPI, MPICH or Intel MPI"
            )
        self.name = f"local-{packed.run}"
        self._ranks = ranks
        self._collector = Collector(packed.key, packed.run)
        self._folder = tempfile.TemporaryDirectory(prefix="trireme-run-")
        for name, content in packed.files.items():
            path = Path(self._folder.name, name)
            path.touch(mode=0o600)
            path.write_bytes(content)
        variables = dict(env) if isinstance(env, Mapping) else {item["name"]: item["value"] for item in env or []}
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
        self._shown: display.Display | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        with self._process.stdout as output:
            for raw in output:
                line = raw.rstrip("\r\n")
                if is_result(line):
                    self._collector.feed(line)
                else:
                    self._lines.append(line)

    def follow(self, output: display.Display | None = None) -> LocalJob:
        """Shows progress and output until the run has finished. Ctrl-C ends the run."""
        shown = output or display.current_display()
        at = 0
        try:
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
        from trireme.run import Results, rank_failure

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
                last_lines=self._lines[-5:],
            )
        return results.values(self._ranks)

    def logs(self) -> str:
        """Returns the output of mpirun and of the ranks."""
        return "".join(line + "\n" for line in self._lines)

    def delete(self) -> None:
        """Ends the run."""
        self._process.terminate()
        self.wait()


def _flags(mpirun: str) -> list[str]:
    """Returns the flags that Open MPI needs to start any number of ranks here."""
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False).stdout
    if "Open MPI" not in version and "open-mpi" not in version and "PRRTE" not in version:
        return []
    # Containers and notebooks often run as root, and have fewer cores than ranks.
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [*root, "--oversubscribe"]
