# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a run returned: their results, exceptions and reports."""

from __future__ import annotations

import contextlib
import linecache
import re
from typing import Any

import cloudpickle

from trireme import errors
from trireme._frames import ResourceFrames
from trireme._models import TrainJobStatus
from trireme._results import Collector, Outcome

MAX_RESULT_BYTES = 1 << 20
# A kubelet keeps 10 MiB of a log. The results of all ranks must fit, in base64 and with signatures.
MAX_ALL_RESULT_BYTES = 6 << 20


class Results:
    """The outcomes of the ranks of one run."""

    def __init__(self, collector: Collector, name: str) -> None:
        self._collector = collector
        self._name = name

    def values(self, ranks: int) -> list[Any]:
        """Returns the results in the order of the ranks."""
        missing = [rank for rank in range(ranks) if rank not in self._collector.outcomes]
        if missing:
            cut = "; ".join(f"rank {r}: {n} of {m} lines" for r, n, m in self._collector.incomplete()[:5])
            raise errors.ResultsUnavailableError(
                f"job {self._name} succeeded, but the results of ranks {_ranges(missing)} are not in the launcher's log"
                + (f" ({cut})" if cut else ""),
                reason="ResultsMissing",
                remedy="The node keeps only the last part of a long log: print less, return less, or write the "
                "results to a volume; follow() reads them while the job runs",
            )
        return [cloudpickle.loads(self._collector.outcomes[rank].value) for rank in range(ranks)]

    def failure(self) -> Outcome | None:
        """Returns the first outcome that is no result."""
        return next((o for o in self._collector.outcomes.values() if o.kind != "result"), None)


def _ranges(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:10])) + (", …" if len(ranks) > 10 else "")


FRAME = re.compile(r'^  File "(.+)", line ([0-9]+), in ')


def with_source(traceback: str) -> str:
    """Returns a rank's traceback with the source lines that only the caller has, such as those of cells."""
    lines = traceback.splitlines()
    output = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        output.append(line)
        frame = FRAME.match(line)
        if frame and not following.startswith("    "):
            source = linecache.getline(frame[1], int(frame[2])).strip()
            output += [f"    {source}"] if source else []
    return "\n".join(output) + "\n"


def rank_failure(outcome: Outcome, name: str, image: str, status: TrainJobStatus) -> errors.JobFailed:
    """Returns the exception for what a rank sent instead of a result."""
    header = outcome.header
    node = errors.node_of(status, header["host"])
    if outcome.kind == "python":
        here, there = header["here"], header["there"]
        advice = f"Use an image with Python {there}, or run this program with Python {here}"
        what = f"image {image} has Python {here}, and this is Python {there}. The function was not called"
        message = f"job {name}: {what}. {advice}"
        return errors.JobFailed(message, status=status, reason="PythonVersionMismatch", remedy=advice, node=node)
    failure = errors.JobFailed(
        f"job {name}: rank {outcome.rank} on {header['host']} raised {header['type']}: {header['message']}",
        status=status,
        reason="TrainingError",
        cause=f"{header['type']}: {header['message']}",
        remedy="Correct the function; the traceback is that of the rank",
        rank=outcome.rank,
        node=node,
        last_lines=header["traceback"].splitlines()[-5:],
    )
    failure.traceback = with_source(header["traceback"])
    if outcome.value:
        # A class that only the image has cannot be unpickled here.
        with contextlib.suppress(Exception):
            failure.exception = cloudpickle.loads(outcome.value)
            failure.__cause__ = failure.exception
    return failure


class Curve(list[dict[str, Any]], ResourceFrames):
    """The reports of a program, in the order of time."""

    def rows(self) -> list[dict[str, Any]]:
        return list(self)


def result_limits(max_result_bytes: int | None, ranks: int) -> tuple[int, int]:
    """Returns the limit for the result of a rank, and the highest that is possible."""
    most = MAX_ALL_RESULT_BYTES // ranks
    if max_result_bytes is None:
        return min(MAX_RESULT_BYTES, most), most
    limit = count("max_result_bytes", max_result_bytes)
    if limit > most:
        raise errors.ValidationError(
            "max_result_bytes",
            f"must be at most {most} with {ranks} ranks, not {limit}",
            remedy="Write larger results to a volume, and return their paths",
        )
    return limit, most


def count(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise errors.ValidationError(name, f"must be at least 1, not {value}")
    return value
