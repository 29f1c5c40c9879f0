# What every rank of the start-up benchmark runs: the clock at each step, printed when all is over.
import time

up = time.time_ns()
from mpi4py import MPI

begun = time.time_ns()
world = MPI.COMM_WORLD
world.Barrier()
past = time.time_ns()
time.sleep(1)  # so that the end of the job is not mixed up with its beginning
world.Barrier()
print("stamps", world.rank, up, begun, past, flush=True)
