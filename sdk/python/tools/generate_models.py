# SPDX-License-Identifier: Apache-2.0
"""Writes src/trireme/_models.py: dataclasses of the API's objects, from the CRDs of the chart.

With --check, nothing is written, and it fails if the file would change. Parts of pods (templates,
volumes, environment) stay dictionaries: their schemas are Kubernetes' own.
"""

from __future__ import annotations

import difflib
import keyword
import re
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

PACKAGE = Path(__file__).parent.parent
CRDS = PACKAGE.parent.parent / "charts" / "trireme" / "crds"
TARGET = PACKAGE / "src" / "trireme" / "_models.py"

# Names of classes by the properties that have them, where the property's own name is not the type's.
NAMES = {
    "trainer": "TrainerSpec",
    "launcher": "LauncherSpec",
    "initializer": "InitializerSpec",
    "dataset": "Source",
    "model": "Source",
    "storage": "InitializerStorage",
    "resources": "ResourceRequirements",
    "resourcesPerNode": "ResourceRequirements",
    "launcherPodStatus": "PodStatus",
    "workerPodStatuses": "PodStatus",
    "conditions": "Condition",
    "timeline": "TimelineEntry",
    "volcano": "GangPolicy",
    "kai": "GangPolicy",
    "coscheduling": "GangPolicy",
    "native": "GangPolicy",
    "replicatedJobs": "ReplicatedJob",
}
# Schemas of Kubernetes, and maps.
OPAQUE = {"env", "volumes", "volumeMounts", "claims", "labelSelector", "metadata"}
KINDS = ["TrainJob", "MPIJob", "TrainingRuntime", "ClusterTrainingRuntime"]
# What the generated classes have beside their fields.
MIXINS = {
    "TrainJob": "JobObject",
    "MPIJob": "JobObject",
    "TrainJobStatus": "JobStatusMixin",
    "MPIJobStatus": "JobStatusMixin",
}
SCALARS = {"string": "str", "integer": "int", "boolean": "bool", "number": "float"}


@dataclass
class Member:
    json: str
    type: str
    description: str
    container: str = ""


@dataclass
class Model:
    name: str
    description: str
    members: dict[str, Member] = field(default_factory=dict)


def snake(name: str) -> str:
    name = name.replace("GPUs", "Gpus")
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name).lower()
    return name + "_" if keyword.iskeyword(name) else name


def paragraph(text: str, indent: str, first: str = "") -> str:
    return textwrap.fill(" ".join(text.split()), 105, initial_indent=indent + first, subsequent_indent=indent)


class Models:
    """The classes of all kinds, in the order in which Python must define them."""

    def __init__(self) -> None:
        self.done: dict[str, Model] = {}

    def add(self, name: str, schema: dict[str, Any], owner: str) -> str:
        """Adds the class of an object. Two properties with one class have the fields of both."""
        model = self.done.get(name) or Model(name, schema.get("description", ""))
        for key, value in schema["properties"].items():
            if owner == "" and key == "metadata":
                model.members[key] = Member(key, "ObjectMeta", "Name, namespace, labels and annotations.", "object")
            elif key not in model.members:
                model.members[key] = self.member(name, key, value)
                if owner == "" and key in ("spec", "status"):
                    model.members[key].container = "always"
        self.done.pop(name, None)
        self.done[name] = model
        return name

    def member(self, owner: str, key: str, schema: dict[str, Any]) -> Member:
        text = schema.get("description", "")
        kind = schema.get("type")
        if schema.get("x-kubernetes-int-or-string"):
            return Member(key, "str | int", text)
        if kind == "array":
            items = schema["items"]
            if items.get("type") == "object":
                if key in OPAQUE or not items.get("properties"):
                    return Member(key, "list[dict[str, Any]]", text, "plain")
                return Member(key, f"list[{self.named(owner, key, items)}]", text, "plain")
            return Member(key, f"list[{SCALARS[items['type']]}]", text, "plain")
        if kind == "object":
            values = schema.get("additionalProperties")
            if isinstance(values, dict) and values.get("properties") and key not in OPAQUE:
                return Member(key, f"dict[str, {self.named(owner, key, values)}]", text, "plain")
            if not schema.get("properties") or key in OPAQUE or is_pod_template(schema):
                return Member(key, "dict[str, Any]", text, "plain")
            return Member(key, self.named(owner, key, schema), text, "object")
        if schema.get("format") == "date-time":
            return Member(key, "datetime", text)
        if values := schema.get("enum"):
            return Member(key, f"Literal[{', '.join(repr(v).replace(chr(39), chr(34)) for v in values)}]", text)
        return Member(key, SCALARS[kind], text)

    def named(self, owner: str, key: str, schema: dict[str, Any]) -> str:
        root = next(kind for kind in KINDS if owner.startswith(kind)) if owner.startswith(tuple(KINDS)) else ""
        if key in ("spec", "status"):
            name = {"RuntimeTemplate": "RuntimeTemplateSpec"}.get(owner, f"{root}{key.capitalize()}")
            name = name.replace("ClusterTrainingRuntime", "TrainingRuntime")
        elif key == "template" and owner == "TrainingRuntimeSpec":
            name = "RuntimeTemplate"
        elif key == "conditions" and owner.startswith("MPIJob"):
            name = "JobCondition"
        elif key == "mpiReplicaSpecs":
            name = "ReplicaSpec"
        elif key == "replicaStatuses":
            name = "ReplicaStatus"
        elif key == "mlPolicy":
            name = "MLPolicy"
        else:
            name = NAMES.get(key, key[0].upper() + key[1:])
        return self.add(name, schema, owner)


def is_pod_template(schema: dict[str, Any]) -> bool:
    return "containers" in schema["properties"].get("spec", {}).get("properties", {})


def default(member: Member) -> str:
    if member.type == "ObjectMeta":
        return "field(default_factory=ObjectMeta"
    if member.container == "plain":
        factory = member.type.partition("[")[0]
        return f"field(default_factory={factory}"
    if member.container == "always":
        return f"field(default_factory=lambda: {member.type}()"
    return "field(default=None"


def docstring(text: str) -> str:
    # Descriptions have regular expressions.
    return paragraph(text, "    ", '"""').replace("\\", "\\\\") + '"""'


def source(models: Models) -> str:
    lines = [
        "# SPDX-License-Identifier: Apache-2.0",
        '"""The objects of the API as dataclasses. Generated from the CRDs: run tools/generate_models.py."""',
        "",
        "from __future__ import annotations",
        "",
        "from dataclasses import dataclass, field",
        "from datetime import datetime",
        "from typing import Any, Literal",
        "",
        "from trireme._objects import JobObject, JobStatusMixin, Object, ObjectMeta",
    ]
    for model in models.done.values():
        lines += ["", "", "@dataclass", f"class {model.name}({MIXINS.get(model.name, 'Object')}):"]
        text = model.description if model.description else model.name + "."
        lines += [docstring(text), ""]
        for member in model.members.values():
            optional = member.container not in ("plain", "always") and member.type != "ObjectMeta"
            kind = f"{member.type} | None" if optional else member.type
            lines.append(f'    {snake(member.json)}: {kind} = {default(member)}, metadata={{"json": "{member.json}"}})')
            lines.append(docstring(member.description))
    return "\n".join(lines) + "\n"


def generated() -> str:
    models = Models()
    for kind in KINDS:
        path = CRDS / f"kubeflow.org_{kind.lower()}s.yaml"
        definition = yaml.safe_load(path.read_text())
        version = next(v for v in definition["spec"]["versions"] if v["storage"])
        models.add(kind, version["schema"]["openAPIV3Schema"], "")
    return source(models)


def main() -> int:
    wanted = generated()
    present = TARGET.read_text() if TARGET.exists() else ""
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(wanted)
        return 0
    if wanted == present:
        return 0
    difference = difflib.unified_diff(
        present.splitlines(), wanted.splitlines(), "present", "generated", lineterm="", n=1
    )
    print("\n".join(list(difference)[:40]))
    print(f"{TARGET.name} does not match the CRDs: run sdk/python/tools/generate_models.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
