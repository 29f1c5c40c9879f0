# SPDX-License-Identifier: Apache-2.0
"""How ranks return their results: as signed lines of their output.

Pods have no token of the API server, so results come back by the launcher's log. Each line has the
run, the rank, its part of all parts, a piece of the result in base64, and an HMAC of these with the
key of the run. Only lines with a valid HMAC are used, so that nothing else that a program prints is
ever unpickled. This module runs in pods, too: it needs only the standard library.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import zlib
from typing import Any, Dict, Iterator, List, Optional, Tuple

MARK = "trireme-result:"
# Lines of at most 2 KiB: larger writes to a pipe or a terminal may be torn by those of other ranks.
PIECE = 1800
LINE = re.compile(
    re.escape(MARK) + r" v1 ([0-9a-f]{16}) ([0-9]{1,6}) ([0-9]{1,6})/([0-9]{1,6}) ([A-Za-z0-9+/=]+) ([0-9a-f]{64})"
)
# Results of one rank are at most this large, whatever the sender says.
MAX_BYTES = 64 << 20


def is_result(line: str) -> bool:
    """Whether a line of output carries a result. Users do not see these."""
    return MARK in line


def _signature(key: bytes, run: str, rank: int, part: int, parts: int, data: str) -> str:
    return hmac.new(key, f"{run} {rank} {part}/{parts} {data}".encode(), hashlib.sha256).hexdigest()


def lines(key: bytes, run: str, rank: int, header: Dict[str, Any], value: bytes) -> Iterator[str]:
    """Yields the lines that carry an outcome: a header in JSON and a pickled value."""
    content = zlib.compress(json.dumps(header).encode() + b"\n" + value)
    text = base64.b64encode(content).decode()
    pieces = [text[i : i + PIECE] for i in range(0, len(text), PIECE)]
    for part, piece in enumerate(pieces):
        signature = _signature(key, run, rank, part, len(pieces), piece)
        yield f"{MARK} v1 {run} {rank} {part}/{len(pieces)} {piece} {signature}\n"


class Outcome:
    """What a rank returned: a pickled result, or an exception."""

    def __init__(self, rank: int, header: Dict[str, Any], value: bytes) -> None:
        self.rank = rank
        self.kind: str = header["outcome"]
        self.header = header
        self.value = value


class Collector:
    """Collects the outcomes of a run from lines of output."""

    def __init__(self, key: bytes, run: str) -> None:
        self._key = key
        self._run = run
        self._parts: Dict[int, Dict[int, str]] = {}
        self._sizes: Dict[int, int] = {}
        self.outcomes: Dict[int, Outcome] = {}
        self.rejected = 0

    def feed(self, line: str) -> Optional[Outcome]:
        """Takes a line, and returns an outcome once its last part is there."""
        match = LINE.search(line)
        if not match:
            self.rejected += is_result(line)
            return None
        run, data, signature = match[1], match[5], match[6]
        rank, part, parts = int(match[2]), int(match[3]), int(match[4])
        wanted = _signature(self._key, run, rank, part, parts, data)
        if run != self._run or not hmac.compare_digest(signature, wanted):
            self.rejected += 1
            return None
        received = self._parts.setdefault(rank, {})
        received[part] = data
        self._sizes[rank] = parts
        if rank in self.outcomes or len(received) < parts:
            return None
        outcome = self._outcome(rank, "".join(received[i] for i in range(parts)))
        self.outcomes[rank] = outcome
        return outcome

    def incomplete(self) -> List[Tuple[int, int, int]]:
        """Ranks with missing lines: rank, lines that were read, lines that were sent."""
        return [(r, len(self._parts[r]), n) for r, n in sorted(self._sizes.items()) if r not in self.outcomes]

    @staticmethod
    def _outcome(rank: int, text: str) -> Outcome:
        decompressor = zlib.decompressobj()
        content = decompressor.decompress(base64.b64decode(text), MAX_BYTES)
        if decompressor.unconsumed_tail:
            raise ValueError(f"the result of rank {rank} is larger than {MAX_BYTES >> 20} MiB")
        header, _, value = content.partition(b"\n")
        return Outcome(rank, json.loads(header), value)
