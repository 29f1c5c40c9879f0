#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures jobs on a machine's local cluster against the same programs started by hand.

Run `run` beside this file, which starts the cluster first. Results are written after every
measurement, so that a run that is stopped keeps what it has.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

NAMESPACE = "bench"
MPIRUN = ["mpirun", "--bind-to", "none", "--map-by", "slot"]


class Bench:
    """The cluster, the results, and the time that is left."""

    def __init__(self, arguments):
        self.tool, self.odh = arguments.tool, arguments.odh
        self.image, self.python, self.repetitions = arguments.image, arguments.python, arguments.repetitions
        self.programs, self.many, self.rounds = pathlib.Path(arguments.programs), arguments.many, arguments.rounds
        self.output = pathlib.Path(arguments.output)
        self.deadline = time.time() + arguments.seconds
        self.results = {"conditions": conditions(), "measurements": [], "notes": []}
        self.began = time.time()

    def save(self):
        self.output.write_text(json.dumps(self.results, indent=1))

    def add(self, group, contestant, **values):
        entry = {"group": group, "contestant": contestant, **values}
        self.results["measurements"].append(entry)
        self.save()
        print(f"{time.time() - self.began:5.0f}s {group:10} {contestant:28} " + " ".join(f"{k}={short(v)}" for k, v in values.items()), flush=True)

    def note(self, title, text):
        self.results["notes"].append({"title": title, "text": text})
        self.save()
        print(f"{time.time() - self.began:5.0f}s note {title}: {text.strip()[:600]}", flush=True)

    def has(self, seconds):
        return time.time() + seconds < self.deadline

    def kubectl(self, *arguments, check=True, text=None):
        done = subprocess.run([self.tool, "kubectl", "--namespace", NAMESPACE, *arguments], input=text, text=True, capture_output=True, timeout=120)
        if check and done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def create(self, manifest):
        self.kubectl("create", "--filename", "-", text=json.dumps(manifest))

    def wait(self, manifest, timeout):
        """Wait until a job has finished; whether it succeeded."""
        done = subprocess.run([self.odh, manifest["kind"].lower(), "wait", name_of(manifest), "--namespace", NAMESPACE, "--timeout", f"{timeout}s"],
                              text=True, capture_output=True, timeout=timeout + 30)
        return done.returncode == 0

    def log(self, manifest):
        done = subprocess.run([self.odh, manifest["kind"].lower(), "logs", name_of(manifest), "--namespace", NAMESPACE], text=True, capture_output=True, timeout=60)
        return done.stdout + done.stderr

    def diagnosis(self, manifest):
        done = subprocess.run([self.odh, "diagnose", f"{manifest['kind'].lower()}/{name_of(manifest)}", "--namespace", NAMESPACE],
                              text=True, capture_output=True, timeout=60)
        return done.stdout + done.stderr

    def delete(self, manifest):
        self.kubectl("delete", manifest["kind"], name_of(manifest), "--cascade=foreground", "--wait", "--timeout=60s", check=False)

    def run(self, manifest, timeout=180):
        """Run a job: its results, when it was submitted, and when its success was seen."""
        submitted = time.time()
        self.create(manifest)
        succeeded = self.wait(manifest, timeout)
        finished = time.time()
        log = self.log(manifest)
        results = results_in(log)
        if not succeeded or not results:
            self.note(f"{name_of(manifest)} failed", log[-1500:] + "\n" + self.diagnosis(manifest)[-1500:])
        self.delete(manifest)
        return results, submitted, finished


def name_of(manifest):
    return manifest["metadata"]["name"]


def short(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:120]


def results_in(text):
    return [json.loads(line[line.index("RESULT ") + 7:]) for line in text.splitlines() if "RESULT " in line]


def conditions():
    def first(command):
        try:
            return subprocess.run(command, text=True, capture_output=True, timeout=20).stdout.strip().splitlines()[0]
        except (OSError, IndexError):
            return ""

    return {
        "kernel": first(["uname", "-r"]), "cpus": os.cpu_count(),
        "processor": first(["sh", "-c", "grep -m1 'model name' /proc/cpuinfo | cut -d: -f2"]),
        "mpi": first(["mpirun", "--version"]), "gpu": first(["nvidia-smi", "-L"]),
        "driver": first(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]),
        "load": os.getloadavg(),
    }


def job_of(name, image, launcher, workers, slots, cpu, memory, gpus=0):
    """An MPIJob; it needs nothing that a namespace with restricted PodSecurity forbids."""
    mounts = {"volumeMounts": [{"name": "bench", "mountPath": "/bench", "readOnly": True}]}
    volumes = {"volumes": [{"name": "bench", "configMap": {"name": "bench"}}]}
    environment = [{"name": name, "value": "1"} for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")]
    resources = {"requests": {"cpu": str(cpu), "memory": memory}, "limits": {"memory": memory}}
    if gpus:
        resources["limits"]["nvidia.com/gpu"] = str(gpus)
    return {
        "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": name},
        "spec": {
            "slotsPerWorker": slots, "runPolicy": {"backoffLimit": 0, "cleanPodPolicy": "Running"},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": {"spec": {"containers": [{
                    "name": "launcher", "image": image, "imagePullPolicy": "Never", "command": launcher, "env": environment,
                    "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}}, **mounts}], **volumes}}},
                "Worker": {"replicas": workers, "template": {"spec": {"containers": [{
                    "name": "worker", "image": image, "imagePullPolicy": "Never", "env": environment, "resources": resources, **mounts}], **volumes}}},
            },
        },
    }


def train_job_of(name, image, command, cpu, memory, gpus):
    resources = {"requests": {"cpu": str(cpu), "memory": memory}, "limits": {"memory": memory, "nvidia.com/gpu": str(gpus)}}
    return {
        "apiVersion": "kubeflow.org/v2alpha1", "kind": "TrainJob", "metadata": {"name": name},
        "spec": {
            "runtimeRef": {"apiGroup": "kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "mpi-openmpi-distributed"},
            "trainer": {
                "numNodes": 1, "slotsPerWorker": 1, "image": image, "command": command, "resourcesPerNode": resources,
                "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
                "volumes": [{"name": "bench", "configMap": {"name": "bench"}}],
                "volumeMounts": [{"name": "bench", "mountPath": "/bench", "readOnly": True}],
            },
            "launcher": {"resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}},
        },
    }


def by_hand(command, timeout=180, **environment):
    """Run a program on the machine itself: its results, when it was started, and when it ended."""
    # Settings of this machine that an image does not have.
    env = {k: v for k, v in os.environ.items() if not k.startswith("OMPI_MCA_btl")}
    env |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **environment}
    started = time.time()
    done = subprocess.run(command, text=True, capture_output=True, timeout=timeout, env=env, cwd="/tmp")
    finished = time.time()
    results = results_in(done.stdout)
    if not results:
        print(f"{' '.join(command)}: {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}", file=sys.stderr, flush=True)
    return results, started, finished


def bare(bench, ranks, program, *arguments, mca=()):
    options = [word for pair in mca for word in ("--mca", *pair)]
    return [*MPIRUN, "--allow-run-as-root", *options, "-np", str(ranks), "python3", "-m", "mpi4py", str(bench.programs / program), *arguments]


TCP = (("btl", "self,tcp"), ("btl_tcp_if_include", "lo"))


def inside(ranks, program, *arguments, python="python3", mca=()):
    options = [word for pair in mca for word in ("--mca", *pair)]
    return " ".join([*MPIRUN, *options, "-np", str(ranks), python, "-m", "mpi4py", f"/bench/{program}", *arguments])


def gpu(bench):
    """A small GPT on the GPU."""
    command = ["python3", "/bench/train_gpu.py"]

    def record(contestant, run):
        results, began, finished = run
        for result in results:
            bench.add("gpu", contestant, stepsPerSecond=result["stepsPerSecond"], firstStep=result["firstStepAt"] - began,
                      total=finished - began, afterProgram=finished - result["finishedAt"], result=result)

    program = [bench.python, str(bench.programs / "train_gpu.py")]
    by_hand(program)  # reads the libraries from the disk
    for number in range(bench.repetitions):
        if bench.has(40):
            record("bare", by_hand(program))
        if bench.has(40):
            record("MPIJob", bench.run(job_of(f"gpt-{number}", bench.image, [*MPIRUN, "-np", "1", *command], 1, 1, 4, "32Gi", gpus=1)))
        if bench.has(40):
            record("TrainJob", bench.run(train_job_of(f"gpt-train-{number}", bench.image, command, 4, "32Gi", 1)))


def devices(bench):
    """Each job has its own GPU; the next one waits."""
    show = ["sh", "-c", "ls /dev | grep nvidia | tr '\\n' ' '; nvidia-smi -L || /usr/local/nvidia/bin/nvidia-smi -L; sleep 12"]
    first = job_of("first", bench.image, [*MPIRUN, "-np", "1", *show], 1, 1, 1, "4Gi", gpus=1)
    second = job_of("second", bench.image, [*MPIRUN, "-np", "1", "nvidia-smi", "-L"], 1, 1, 1, "4Gi", gpus=1)
    bench.create(first)
    time.sleep(4)
    bench.create(second)
    time.sleep(4)
    bench.note("second job waits", bench.diagnosis(second))
    bench.add("devices", "first succeeded", value=bench.wait(first, 60))
    bench.note("first job sees", bench.log(first))
    bench.delete(first)
    bench.add("devices", "second succeeded", value=bench.wait(second, 60))
    bench.note("second job sees", bench.log(second))
    bench.delete(second)


def failures(bench):
    """What is reported of programs that fail on a GPU."""
    train = "python3 /bench/train_gpu.py"
    one = [*MPIRUN, "-np", "1"]
    cases = {
        "memory": job_of("memory", bench.image, [*one, "python3", "/bench/memory.py"], 1, 1, 1, "32Gi", gpus=1),
        "no-gpu": job_of("no-gpu", bench.image, [*one, "sh", "-c", train], 1, 1, 1, "16Gi"),
        "no-driver": job_of("no-driver", bench.image.replace("host:", "no-driver:"), [*one, "sh", "-c", train], 1, 1, 1, "16Gi"),
    }
    # Each holds the GPU, so they run one after the other.
    later = {
        "other-driver": job_of("other-driver", bench.image, [*one, "sh", "-c", "LD_LIBRARY_PATH=/usr/local/cuda/compat " + train], 1, 1, 1, "16Gi", gpus=1),
        "hidden": job_of("hidden", bench.image, [*one, "sh", "-c", "CUDA_VISIBLE_DEVICES=7 " + train], 1, 1, 1, "16Gi", gpus=1),
    }
    cases |= later
    for manifest in cases.values():
        bench.create(manifest)
    for name, manifest in cases.items():
        bench.wait(manifest, 60)
        message = bench.kubectl("get", "mpijob", name, "--output", "json")
        bench.note(f"failure {name}", bench.log(manifest)[-3500:] + "\n-- diagnosis --\n" + bench.diagnosis(manifest))
        bench.note(f"status {name}", json.dumps(json.loads(message).get("status", {}))[:6000])
        bench.delete(manifest)


def record_all(bench, group, contestant, results):
    for result in results:
        if "stepsPerSecond" in result:
            bench.add(result.get("what", "train"), contestant, ranks=result["ranks"], stepsPerSecond=result["stepsPerSecond"], shareOfMPI=result["shareOfMPI"])
        else:
            bench.add(result["what"], contestant, ranks=result["ranks"], seconds=result["seconds"])
    if not results:
        bench.note(f"{group} {contestant}", "no results")


def cpu(bench):
    """Data-parallel training, and messages, between pods and by hand."""
    seconds, counts = "2", [1, 2, 4, 8, 12]
    rounds = []
    for _ in range(bench.repetitions):
        rounds += [inside(n, "train_cpu.py", seconds) for n in counts] + [inside(n, "messages.py") for n in (2, 8)]
    pods = job_of("pods", bench.image, ["sh", "-c", "; ".join(rounds)], 12, 1, 1, "4Gi")
    record_all(bench, "cpu", "pods", bench.run(pods, 260)[0])
    rounds = []
    for _ in range(bench.repetitions):
        rounds += [inside(8, "train_cpu.py", seconds), inside(2, "messages.py"), inside(8, "messages.py")]
    slots = job_of("slots", bench.image, ["sh", "-c", "; ".join(rounds)], 1, 8, 8, "16Gi")
    record_all(bench, "cpu", "slots of one pod", bench.run(slots, 150)[0])
    for _ in range(bench.repetitions):
        for n in counts:
            if bench.has(20):
                record_all(bench, "cpu", "bare, shared memory", by_hand(bare(bench, n, "train_cpu.py", seconds))[0])
            if n > 1 and bench.has(20):
                record_all(bench, "cpu", "bare, TCP", by_hand(bare(bench, n, "train_cpu.py", seconds, mca=TCP))[0])
        for n in (2, 8):
            if bench.has(20):
                record_all(bench, "cpu", "bare, shared memory", by_hand(bare(bench, n, "messages.py"))[0])
                record_all(bench, "cpu", "bare, TCP", by_hand(bare(bench, n, "messages.py", mca=TCP))[0])


# Settings of Open MPI that may make messages between pods faster.
VARIANTS = {
    "pods": (),
    "pods, 4 links": (("btl_tcp_links", "4"),),
    "pods, ring": (("coll_tuned_use_dynamic_rules", "1"), ("coll_tuned_allreduce_algorithm", "4")),
    "pods, Rabenseifner": (("coll_tuned_use_dynamic_rules", "1"), ("coll_tuned_allreduce_algorithm", "6")),
    "pods, buffers 1 MiB": (("btl_tcp_sndbuf", "1048576"), ("btl_tcp_rcvbuf", "1048576")),
    "pods, UCX": (("pml", "ucx"), ("osc", "ucx")),
}

# A launcher that runs the commands that it is given, one after the other.
LOOP = "echo READY; while :; do until [ -e /tmp/go ]; do sleep 0.05; done; mv /tmp/go /tmp/now; [ -s /tmp/now ] || exit 0; sh /tmp/now; echo DONE; done"


class Ranks:
    """A job whose pods stay, so that its runs can alternate with those of others."""

    def __init__(self, bench, name, workers, slots, cpu):
        self.bench, self.job = bench, job_of(name, bench.image, ["sh", "-c", LOOP], workers, slots, cpu, "8Gi")
        self.pod = f"{name}-launcher-r0"
        bench.create(self.job)
        bench.kubectl("wait", f"pod/{self.pod}", "--for=create", "--timeout=30s")
        bench.kubectl("wait", f"pod/{self.pod}", "--for=condition=Ready", "--timeout=60s")
        self.log = subprocess.Popen([bench.tool, "kubectl", "logs", "--follow", "--namespace", NAMESPACE, self.pod, "--container", "launcher"],
                                    text=True, stdout=subprocess.PIPE)
        self.until("READY")

    def until(self, mark):
        lines = []
        for line in self.log.stdout:
            lines.append(line)
            if mark in line:
                break
        return "".join(lines)

    def tell(self, command):
        self.bench.kubectl("exec", "--stdin", self.pod, "--container", "launcher", "--", "sh", "-c", "cat >/tmp/next && mv /tmp/next /tmp/go", text=command)

    def run(self, ranks, program, *arguments, mca=()):
        self.tell(inside(ranks, program, *arguments, mca=mca))
        return self.until("DONE")

    def end(self):
        self.tell("")
        self.log.wait(timeout=60)
        self.bench.delete(self.job)


def alternate(bench):
    """Eight ranks in eight pods, in one pod, and by hand: runs of a few seconds that alternate, because other users of the host disturb all alike."""
    seconds = "2"
    pods, slots = Ranks(bench, "pods", 8, 1, "500m"), Ranks(bench, "slots", 1, 8, 4)
    for _ in range(bench.rounds):
        if not bench.has(40):
            break
        record_all(bench, "alternate", "8 pods of 1 slot", results_in(pods.run(8, "compare.py", seconds)))
        record_all(bench, "alternate", "bare, TCP", by_hand(bare(bench, 8, "compare.py", seconds, mca=TCP))[0])
        record_all(bench, "alternate", "1 pod of 8 slots", results_in(slots.run(8, "compare.py", seconds)))
        record_all(bench, "alternate", "bare, shared memory", by_hand(bare(bench, 8, "compare.py", seconds))[0])
        record_all(bench, "alternate", "pods", results_in(pods.run(1, "compare.py", seconds)))
        record_all(bench, "alternate", "bare", by_hand(bare(bench, 1, "compare.py", seconds))[0])
    for _ in range(bench.repetitions):
        if not bench.has(45):
            break
        record_all(bench, "messages", "bare, shared memory", by_hand(bare(bench, 2, "messages.py"))[0])
        record_all(bench, "messages", "1 pod of 8 slots", results_in(slots.run(2, "messages.py")))
        record_all(bench, "messages", "bare, TCP", by_hand(bare(bench, 2, "messages.py", mca=TCP))[0])
        record_all(bench, "messages", "pods", results_in(pods.run(2, "messages.py")))
    for _ in range(bench.repetitions):
        for name, mca in VARIANTS.items():
            if not bench.has(25):
                break
            output = pods.run(8, "messages.py", mca=mca)
            record_all(bench, "variants", name, results_in(output))
            if not results_in(output):
                bench.note(name, output[-1500:])
    slots.end()
    pods.end()


def barrier(bench):
    """Many workers on one node."""
    for number in range(bench.repetitions):
        if not bench.has(60):
            return
        command = [*MPIRUN, "-np", str(bench.many), "python3", "-m", "mpi4py", "/bench/barrier.py"]
        manifest = job_of(f"many-{number}", bench.image, command, bench.many, 1, "50m", "256Mi")
        results, submitted, finished = bench.run(manifest, 120)
        for result in results:
            bench.add("barrier", f"{bench.many} workers", submitToBarrier=result["barrierAt"] - submitted, total=finished - submitted)


PARTS = {"gpu": gpu, "devices": devices, "failures": failures, "cpu": cpu, "alternate": alternate, "barrier": barrier}


def summary(bench):
    """Medians and spread of each number."""
    numbers = {}
    for entry in bench.results["measurements"]:
        for key, value in entry.items():
            label = f"{entry['group']} {entry['contestant']}" + (f", {entry['ranks']} ranks" if "ranks" in entry else "")
            if isinstance(value, float):
                numbers.setdefault((label, key), []).append(value)
            elif key == "seconds":
                for size, seconds in value.items():
                    numbers.setdefault((label, f"{size} bytes, us"), []).append(seconds * 1e6)
    table = {}
    for (label, key), values in sorted(numbers.items()):
        table[f"{label}: {key}"] = {"median": statistics.median(values), "lowest": min(values), "highest": max(values), "runs": len(values)}
        print(f"{label}: {key:22} {statistics.median(values):10.4g}  ({min(values):.4g} to {max(values):.4g}, {len(values)} runs)")
    bench.results["summary"] = table
    bench.save()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", default="bin/cluster")
    parser.add_argument("--odh", default="bin/odh")
    parser.add_argument("--image", default="trireme.local/host:1")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--programs", required=True, help="folder of the programs and the text")
    parser.add_argument("--many", type=int, default=64, help="workers of the part barrier")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the part alternate")
    parser.add_argument("--seconds", type=int, default=480, help="time after which no measurement starts")
    parser.add_argument("--output", required=True)
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    arguments = parser.parse_args()
    bench = Bench(arguments)
    for part in arguments.parts:
        try:
            PARTS[part](bench)
        except Exception as error:  # noqa: BLE001 - the other parts can still be measured
            bench.note(f"part {part} stopped", repr(error))
    summary(bench)


main()
