# SPDX-License-Identifier: Apache-2.0
"""How a job looks in a terminal, in a notebook, and in plain output."""

from __future__ import annotations

import html
import re
import sys
import time
from collections import deque
from typing import Any, Protocol

from trireme import _progress
from trireme._frames import html_table, text

# How often a notebook's output is replaced.
REFRESH_SECONDS = 0.25
NOTEBOOK_LINES = 20
# Open MPI's tag of a line: [1,3]<stdout>: or, in Open MPI 5, [job@host,3]<stdout>. MPICH and Intel MPI: [3].
TAG = re.compile(r"^\[(?:[^\],]*,)?([0-9]+)\](?:<std(?:out|err)>)?:? ?")
COLORS = {"Succeeded": "green", "Failed": "red", "Running": "blue", "Pending": "gray"}


def split_rank(line: str) -> tuple[int | None, str]:
    """Returns the rank that mpirun put in front of a line, and the line without it."""
    match = TAG.match(line)
    return (int(match[1]), line[match.end() :]) if match else (None, line)


def one_line(values: dict[str, Any]) -> str:
    """Returns the metrics of a report as text."""
    names = (name for name in values if name not in ("step", "of"))
    return "  ".join(f"{n} {values[n]:.4g}" if isinstance(values[n], float) else f"{n} {values[n]}" for n in names)


class Display(Protocol):
    """Shows a job that is followed."""

    def line(self, rank: int | None, line: str) -> None: ...
    def progress(self, values: dict[str, Any]) -> None: ...
    def job(self, job: Any) -> None: ...
    def close(self) -> None: ...


class Plain:
    """Writes lines: for pipes and logs."""

    def __init__(self) -> None:
        self._state = ""

    def line(self, rank: int | None, line: str) -> None:
        self._write(line if rank is None else f"[{rank}] {line}")

    def progress(self, values: dict[str, Any]) -> None:
        steps = f"step {values['step']}" if "step" in values else "progress"
        of = f" of {values['of']}" if "of" in values else ""
        self._write(f"{steps}{of}  {one_line(values)}".rstrip())

    def job(self, job: Any) -> None:
        state = state_line(job)
        if state != self._state:
            self._state = state
            self._write(state)

    def close(self) -> None:
        sys.stdout.flush()

    @staticmethod
    def _write(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


class Terminal:
    """Shows a progress bar below the lines."""

    def __init__(self, console: Any = None) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[metrics]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("Pending", total=None, metrics="")
        self._state = ""
        self._progress.start()

    def line(self, rank: int | None, line: str) -> None:
        from rich.text import Text

        # Text, not a string: brackets of programs are no markup.
        output = Text()
        if rank is not None:
            output.append(f"[{rank}] ", style=f"color({rank % 6 + 1})")
        output.append(line)
        self._progress.console.print(output, soft_wrap=True, highlight=False)

    def progress(self, values: dict[str, Any]) -> None:
        step = values.get("step")
        of = values.get("of")
        # A step is reported when it begins: the last one is not the end of the bar.
        self._progress.update(self._task, completed=step, total=of, metrics=one_line(values))

    def job(self, job: Any) -> None:
        state = state_line(job)
        self._progress.update(self._task, description=f"{job.metadata.name}: {job.status.phase or 'Pending'}")
        if state != self._state:
            self._state = state
            self.line(None, state)

    def close(self) -> None:
        self._progress.stop()


class Notebook:
    """Shows the job's card in the output of a cell, with its last lines."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._html = HTML
        self._lines: deque[str] = deque(maxlen=NOTEBOOK_LINES)
        self._values: dict[str, Any] = {}
        self._job: Any = None
        self._shown = 0.0
        self._handle = display(HTML("<p>waiting for the job</p>"), display_id=True)

    def line(self, rank: int | None, line: str) -> None:
        self._lines.append(line if rank is None else f"[{rank}] {line}")
        self._show()

    def progress(self, values: dict[str, Any]) -> None:
        self._values = values
        self._show()

    def job(self, job: Any) -> None:
        self._job = job
        self._show(now=True)

    def close(self) -> None:
        self._show(now=True)

    def _show(self, now: bool = False) -> None:
        if self._job is None or (not now and time.monotonic() - self._shown < REFRESH_SECONDS):
            return
        self._shown = time.monotonic()
        lines = html.escape("\n".join(self._lines))
        self._handle.update(self._html(job_html(self._job, self._values) + (f"<pre>{lines}</pre>" if lines else "")))


def current_display() -> Display:
    """Returns the display for where this program runs."""
    if in_notebook():
        return Notebook()
    return Terminal() if sys.stdout.isatty() else Plain()


def in_notebook() -> bool:
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return type(get_ipython()).__name__ == "ZMQInteractiveShell"


def state_line(job: Any) -> str:
    """Returns the state of a job in one line."""
    status = job.status
    parts = [f"{job.metadata.name}: {status.phase or 'Pending'}"]
    if status.ready_workers and not status.finished:
        parts.append(f"{status.ready_workers} workers are ready")
    if status.failure_message:
        parts.append(f"{status.failure_reason}: {status.failure_message}")
    elif status.quota_wait:
        parts.append(f"waiting for quota {status.quota_wait.name or ''}".rstrip())
    elif status.duration:
        parts.append(f"after {status.duration}")
    return ", ".join(parts)


def job_html(job: Any, progress: dict[str, Any] | None = None) -> str:
    """Returns a job as HTML: status, progress, failure, pods and timeline. All values are escaped."""
    status, meta = job.status, job.metadata
    phase = status.phase or "Pending"
    color = COLORS.get(phase, "gray")
    parts = [
        f"<h4>{html.escape(meta.name)} <span style='color:{color}'>{html.escape(phase)}</span> "
        f"<small>{html.escape(meta.namespace)}</small></h4>",
        progress_html(progress or {}),
        failure_html(status),
    ]
    pods = [pod for pod in [status.launcher_pod_status, *status.worker_pod_statuses] if pod]
    if pods:
        columns = ("name", "node", "phase", "reason", "message")
        parts.append(html_table([{column: getattr(pod, column) for column in columns} for pod in pods]))
    if status.timeline:
        rows = [{"step": entry.step, "time": text(entry.time)} for entry in status.timeline]
        parts.append(f"<details><summary>Timeline</summary>{html_table(rows)}</details>")
    return "<div>" + "".join(parts) + "</div>"


def progress_html(values: dict[str, Any]) -> str:
    if not values:
        return ""
    step, of = values.get("step"), values.get("of")
    bar = (
        f"<progress value='{int(step)}' max='{int(of)}'></progress> {int(step)} / {int(of)} "
        if step is not None and of
        else ""
    )
    return f"<p>{bar}{html.escape(one_line(values))}</p>"


def failure_html(status: Any) -> str:
    if not status.failure_reason:
        return ""
    process = status.failed_process
    lines = html.escape("\n".join(process.last_lines)) if process else ""
    return (
        "<div style='border-left:4px solid red;padding:4px 8px'>"
        f"<b>{html.escape(status.failure_reason)}</b> {html.escape(status.failure_message or '')}"
        + (f"<pre>{lines}</pre>" if lines else "")
        + "</div>"
    )


def report_of(line: str) -> dict[str, Any] | None:
    """Returns what a line reports, with or without a tag in front."""
    return _progress.parse(split_rank(line)[1])
