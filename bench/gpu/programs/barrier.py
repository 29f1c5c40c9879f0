# SPDX-License-Identifier: Apache-2.0
"""Prints when all ranks have passed their first barrier."""

import json
import time

from mpi4py import MPI

MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 0:
    print("RESULT " + json.dumps({"ranks": MPI.COMM_WORLD.size, "barrierAt": time.time()}), flush=True)
