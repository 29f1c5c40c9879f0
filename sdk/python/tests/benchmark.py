# SPDX-License-Identifier: Apache-2.0
"""How long lists of 1,000 jobs take: `tools/test benchmark`. The API server is the fake one of the tests."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from tests.fakeapi import FakeAPI
from trireme.training import TrainingClient

JOBS = 1000


def main() -> None:
    api = FakeAPI()
    for number in range(JOBS):
        pods = [{"index": i, "name": f"j{number}-worker-0-{i}-r0", "node": f"n{i}"} for i in range(8)]
        timeline = [{"step": "Submitted", "time": "2026-01-02T03:04:05Z"}] * 7
        status = {"phase": "Succeeded", "duration": "5m", "workerPodStatuses": pods, "timeline": timeline}
        api.put("trainjobs", "default", {"metadata": {"name": f"j{number}"}, "spec": {}, "status": status})
    client = TrainingClient(kube=api.kube())
    # What the list costs without the package.
    text = json.dumps([item for (plural, _, _), item in api.objects.items() if plural == "trainjobs"])
    steps = {"json": lambda: json.loads(text), "list": client.list_jobs, "list and frame": frame(client)}
    frame(client)()
    for name, step in steps.items():
        seconds = []
        for _ in range(5):
            began = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - began)
        print(f"{JOBS} jobs, {name}: {min(seconds):.3f} s")
    api.close()


def frame(client: TrainingClient) -> Callable[[], object]:
    return lambda: client.list_jobs().to_frame()


if __name__ == "__main__":
    main()
