# SPDX-License-Identifier: Apache-2.0
"""Uses the kubeflow SDK as its users do. Each command is one test."""

import sys

from kubeflow.common.types import KubernetesBackendConfig
from kubeflow.trainer import CustomTrainer, CustomTrainerContainer, TrainerClient
from kubeflow.trainer.options import TrainerCommand

RUNTIME = "openmpi-trireme"
IMAGE = "trireme.local/openmpi:5"
TIMEOUT = 240


def hello(greeting):
    """Runs once on every rank."""
    import os

    from mpi4py import MPI

    world = MPI.COMM_WORLD
    total = world.allreduce(world.Get_rank())
    print(f"{greeting} from rank {world.Get_rank()} of {world.Get_size()}, sum {total}, uid {os.getuid()}", flush=True)


def hungry():
    """Needs more memory than its pod may use, on the last rank."""
    from mpi4py import MPI

    if MPI.COMM_WORLD.Get_rank() == MPI.COMM_WORLD.Get_size() - 1:
        blocks = []
        while True:
            blocks.append(b"x" * (16 << 20))
    MPI.COMM_WORLD.Barrier()


def reporting():
    """Reports its progress by Trainer's protocol, as Hugging Face's Trainer does."""
    import json
    import os
    import ssl
    import urllib.request

    from mpi4py import MPI

    if MPI.COMM_WORLD.Get_rank() == 0:
        with open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]) as token:
            headers = {"Authorization": "Bearer " + token.read().strip(), "Content-Type": "application/json"}
        status = {"progressPercentage": 45, "estimatedRemainingSeconds": 795, "metrics": [{"name": "loss", "value": "0.23"}]}
        request = urllib.request.Request(
            os.environ["KUBEFLOW_TRAINER_SERVER_URL"], json.dumps({"trainerStatus": status}).encode(), headers
        )
        context = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
        print("answer:", urllib.request.urlopen(request, context=context).status, flush=True)
    MPI.COMM_WORLD.Barrier()


def runtimes(client):
    for runtime in client.list_runtimes():
        print(runtime.name, runtime.trainer.framework, runtime.trainer.num_nodes, runtime.trainer.command[0])


def command(client, runtime=RUNTIME):
    name = client.train(
        runtime=client.get_runtime(runtime),
        trainer=CustomTrainerContainer(image=IMAGE, num_nodes=2),
        options=[TrainerCommand(command=["mpirun", "--hostfile", "/etc/mpi/hostfile", "hostname"])],
    )
    finish(client, name)


def shipped(client):
    command(client, "deepspeed-distributed")


def function(client):
    name = client.train(
        runtime=client.get_runtime(RUNTIME),
        trainer=CustomTrainer(func=hello, func_args={"greeting": "hello"}, num_nodes=4),
    )
    # There are logs once the launcher runs.
    client.wait_for_job_status(name, status={"Running", "Complete"}, timeout=TIMEOUT)
    for line in client.get_job_logs(name, follow=True):
        print(line)
    finish(client, name)


def finish(client, name):
    job = client.wait_for_job_status(name, timeout=TIMEOUT)
    print("status:", job.status)
    print("steps:", " ".join(sorted(step.name for step in job.steps)))
    print("logs:", " ".join(client.get_job_logs(name)))
    print("events:", len(client.get_job_events(name)))
    client.delete_job(name)
    print("left:", [job.name for job in client.list_jobs() if job.name == name])


def forever():
    """Runs until its job is deleted."""
    import time

    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()
    while True:
        time.sleep(1)


def running(client):
    name = client.train(runtime=client.get_runtime(RUNTIME), trainer=CustomTrainer(func=forever, num_nodes=3))
    job = client.wait_for_job_status(name, status={"Running"}, timeout=TIMEOUT)
    print("steps:", " ".join(sorted(f"{step.name}={step.status}" for step in job.steps)))
    client.delete_job(name)
    print("left:", [job.name for job in client.list_jobs() if job.name == name])


def memory(client):
    name = client.train(runtime=client.get_runtime(RUNTIME), trainer=CustomTrainer(func=hungry, num_nodes=3))
    job = client.wait_for_job_status(name, status={"Failed"}, timeout=TIMEOUT)
    print("name:", name)
    print("status:", job.status)


def progress(client):
    name = client.train(runtime=client.get_runtime(RUNTIME), trainer=CustomTrainer(func=reporting, num_nodes=2))
    print("status:", client.wait_for_job_status(name, timeout=TIMEOUT).status)
    print("logs:", " ".join(client.get_job_logs(name)))


def torch(client):
    name = client.train(
        runtime=client.get_runtime("torch-distributed"),
        trainer=CustomTrainerContainer(image=IMAGE, num_nodes=1),
        options=[TrainerCommand(command=["sh", "-c", "echo torch runs on $PET_NNODES node"])],
    )
    client.wait_for_job_status(name, timeout=TIMEOUT)
    print("name:", name)
    print("logs:", " ".join(client.get_job_logs(name)))


def main():
    client = TrainerClient(backend_config=KubernetesBackendConfig(namespace=sys.argv[2]))
    {each.__name__: each for each in (runtimes, command, shipped, function, running, memory, progress, torch)}[sys.argv[1]](client)


if __name__ == "__main__":
    main()
