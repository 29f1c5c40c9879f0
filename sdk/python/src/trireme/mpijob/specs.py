# SPDX-License-Identifier: Apache-2.0
"""Resources and workers of MPIJobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trireme import errors
from trireme._kube import JSON
from trireme.training.client import QUANTITY, quantity

MAX_GPUS = 16


@dataclass
class ResourceSpec:
    """The resources of one pod: requests and limits are the same."""

    cpu: str | int | float = 1
    memory: str = "2Gi"
    gpu: int = 0
    gpu_vendor: str = "nvidia.com"
    gpu_product: str = "gpu"

    def __post_init__(self) -> None:
        if not QUANTITY.match(str(self.cpu)) or quantity(str(self.cpu)) <= 0:
            raise errors.ValidationError("cpu", f"must be greater than 0, such as 4 or 500m, not {self.cpu!r}")
        if not QUANTITY.match(str(self.memory)) or quantity(self.memory) <= 0:
            raise errors.ValidationError("memory", f"must be a quantity such as 16Gi, not {self.memory!r}")
        if isinstance(self.gpu, bool) or not isinstance(self.gpu, int) or not 0 <= self.gpu <= MAX_GPUS:
            raise errors.ValidationError("gpu", f"must be from 0 to {MAX_GPUS}, not {self.gpu!r}")

    @property
    def gpu_resource(self) -> str:
        """The name of the GPU's resource, such as nvidia.com/gpu."""
        return f"{self.gpu_vendor}/{self.gpu_product}"

    def to_resource_requirements(self) -> JSON:
        """Returns requests and limits as the API has them."""
        amounts = {"cpu": str(self.cpu), "memory": str(self.memory)}
        if self.gpu:
            amounts[self.gpu_resource] = str(self.gpu)
        return {"requests": dict(amounts), "limits": dict(amounts)}

    @classmethod
    def from_resource_requirements(cls, resources: JSON) -> ResourceSpec:
        """Returns the spec of requests and limits, of which limits win."""
        amounts = {**resources.get("requests", {}), **resources.get("limits", {})}
        spec = cls(cpu=amounts.get("cpu", 1), memory=amounts.get("memory", "2Gi"))
        for name, amount in amounts.items():
            vendor, found, product = name.partition("/")
            if found and "gpu" in product:
                spec = cls(spec.cpu, spec.memory, int(amount), vendor, product)
        return spec

    def calculate_total(self, replicas: int) -> dict[str, float]:
        """Returns what that many pods need: CPUs, bytes of memory, GPUs."""
        return {
            "cpu": quantity(str(self.cpu)) * replicas,
            "memory": quantity(self.memory) * replicas,
            "gpu": self.gpu * replicas,
        }


@dataclass
class ResourceRequirements(ResourceSpec):
    """The resources of a worker: 4 CPUs and 16Gi, and no GPU, by default."""

    cpu: str | int | float = 4
    memory: str = "16Gi"


@dataclass
class WorkerSpec:
    """The workers of an MPIJob."""

    replicas: int = 2
    image: str = ""
    resources: ResourceSpec = field(default_factory=ResourceSpec)
    command: list[str] | None = None
    args: list[str] | None = None
    env: dict[str, str] = field(default_factory=dict)
    volumes: list[JSON] = field(default_factory=list)
    volume_mounts: list[JSON] = field(default_factory=list)
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[JSON] = field(default_factory=list)
    affinity: JSON | None = None

    def pod_template(self, name: str) -> JSON:
        """Returns the template of the pods, whose container has that name."""
        container: dict[str, Any] = {
            "name": name,
            "image": self.image,
            "resources": self.resources.to_resource_requirements(),
            "command": self.command,
            "args": self.args,
            "env": [{"name": key, "value": str(value)} for key, value in self.env.items()],
            "volumeMounts": self.volume_mounts,
        }
        spec: dict[str, Any] = {
            "containers": [{key: value for key, value in container.items() if value}],
            "volumes": self.volumes,
            "nodeSelector": self.node_selector,
            "tolerations": self.tolerations,
            "affinity": self.affinity,
        }
        return {"spec": {key: value for key, value in spec.items() if value}}
