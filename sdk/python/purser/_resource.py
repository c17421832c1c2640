"""What all objects of the API have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar

R = TypeVar("R", bound="Resource")


@dataclass(frozen=True)
class Resource:
    """An object of the API."""

    nested: ClassVar[dict[str, type[Resource]]] = {}  # members that are objects, or lists of objects

    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def parse(cls: type[R], raw: Mapping[str, Any]) -> R:
        """Return the typed form of a JSON object. An absent member is None."""
        values: dict[str, Any] = {}
        for member in fields(cls):
            value = raw if member.name == "raw" else raw.get(member.name)
            kind = cls.nested.get(member.name)
            if kind is not None and isinstance(value, list):
                value = tuple(kind.parse(item) for item in value)
            elif kind is not None and value is not None:
                value = kind.parse(value)
            values[member.name] = value
        return cls(**values)
