# SPDX-License-Identifier: Apache-2.0
"""The base of the generated dataclasses: conversion from and to the API's JSON."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, TypeVar

T = TypeVar("T", bound="Object")


class Object:
    """An object of the API. Field names are in snake case, and camel case in JSON."""

    @classmethod
    def from_dict(cls: type[T], data: dict[str, Any]) -> T:
        """Returns the object that the API describes with `data`. Unknown fields are ignored."""
        values = {}
        for name, json_name, kind in _members(cls):  # type: ignore[arg-type]
            if data.get(json_name) is not None:
                values[name] = _parsed(kind, data[json_name])
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Returns the object as the API's JSON, without fields that are not set."""
        result = {}
        for name, json_name, _ in _members(type(self)):  # type: ignore[arg-type]
            value = _plain(getattr(self, name))
            if value is not None and value != {} and value != []:
                result[json_name] = value
        return result


@functools.cache
def _members(cls: type[Object]) -> list[tuple[str, str, Any]]:
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    return [(f.name, f.metadata.get("json", f.name), hints[f.name]) for f in fields]


def _parsed(kind: Any, value: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin is types.UnionType or origin is typing.Union:
        kind = next(a for a in typing.get_args(kind) if a is not type(None))
        origin = typing.get_origin(kind)
    if origin is list:
        return [_parsed(typing.get_args(kind)[0], item) for item in value]
    if origin is dict:
        return {key: _parsed(typing.get_args(kind)[1], item) for key, item in value.items()}
    if isinstance(kind, type) and issubclass(kind, Object):
        return kind.from_dict(value)
    if kind is datetime:
        return datetime.fromisoformat(value.replace("Z", "+00:00"))
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Object):
        return value.to_dict()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return value


@dataclass
class ObjectMeta(Object):
    """The metadata of an object."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    uid: str | None = None
    resource_version: str | None = field(default=None, metadata={"json": "resourceVersion"})
    generation: int | None = None
    creation_timestamp: datetime | None = field(default=None, metadata={"json": "creationTimestamp"})
    deletion_timestamp: datetime | None = field(default=None, metadata={"json": "deletionTimestamp"})
    owner_references: list[dict[str, Any]] = field(default_factory=list, metadata={"json": "ownerReferences"})


class JobStatusMixin(Object):
    """What can be asked of the status of a job of either kind."""

    phase: Any
    launcher_pod_status: Any
    ready_workers: str | None
    conditions: list[Any]

    @property
    def finished(self) -> bool:
        """Whether the job has succeeded or failed."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def launcher_ready(self) -> bool:
        """Whether the launcher has reached every worker."""
        ready = {"LauncherReady", "Running"}
        return any(c.type in ready and c.status == "True" for c in self.conditions)


class JobObject(Object):
    """A job of either kind."""

    metadata: ObjectMeta
    status: Any
