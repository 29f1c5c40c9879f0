import sys
from mpi4py import MPI

how = sys.argv[1]


def load(path):
    raise RuntimeError(f"dataset {path} is empty")


def main():
    rank = MPI.COMM_WORLD.Get_rank()
    if rank == 0:
        print("epoch 1: loss 0.53", flush=True)
    MPI.COMM_WORLD.Barrier()
    if rank == 3 and how == "raise":
        load("/data/train")
    if rank == 3 and how == "chained":
        try:
            {}["learning_rate"]
        except KeyError as missing:
            raise ValueError("the configuration has no learning_rate\n(config.yaml, line 3)") from missing
    if rank == 3 and how == "sysexit":
        sys.exit("ERROR: --epochs must be 1 or greater")
    if how == "all":
        load("/data/train")
    if rank == 3 and how == "syntax":
        compile("x = = 1", "/workspace/model.py", "exec")
    if "-wait" in sys.argv:
        MPI.COMM_WORLD.Barrier()


main()
