"""Schemas of Protobuf as a registry has them: descriptors that are put together here, without a compiler."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

_TYPES = {"string": 9, "int64": 3, "bytes": 12, "message": 11, "int32": 5}


def build_file(
    name: str, messages: dict[str, dict[str, str]], imports: tuple[str, ...] = ()
) -> descriptor_pb2.FileDescriptorProto:
    """A file of proto3; fields by name with their types, where one that has a dot before it is a message."""
    file = descriptor_pb2.FileDescriptorProto(name=name, package="shop", syntax="proto3", dependency=imports)
    for message, fields in messages.items():
        made = file.message_type.add(name=message)
        for number, (field, kind) in enumerate(fields.items(), 1):
            more: dict[str, Any] = {"type_name": kind} if kind.startswith(".") else {}
            made.field.add(name=field, number=number, label=1, type=_TYPES["message" if more else kind], **more)
    return file


def serialize(file: descriptor_pb2.FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def build_message(files: list[descriptor_pb2.FileDescriptorProto], message: str, **fields: Any) -> bytes:
    """A message of the last file, encoded as its producer does it."""
    pool = DescriptorPool()
    for file in files:
        pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{message}"))()
    for name, value in fields.items():
        if isinstance(value, dict):
            for inner, each in value.items():
                setattr(getattr(made, name), inner, each)
        else:
            setattr(made, name, value)
    return bytes(made.SerializeToString())
