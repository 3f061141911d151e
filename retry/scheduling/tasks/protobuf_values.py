"""Protobuf by the schemas of a registry, as JSON has it: behind the frame stands the message's place in its file, then it.

The place is a list of indexes as zigzag varints, of which a single 0 stands for the first message. A field keeps the name that it
has in its schema; 64-bit numbers are texts in JSON, and bytes are base64.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    json_format,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pool import DescriptorPool

from retry.errors import TaskInvalid

# What every compiler of Protobuf brings along, and no registry has.
_KNOWN = {
    each.DESCRIPTOR.name: each.DESCRIPTOR.serialized_pb
    for each in (
        any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2,
    )
}  # fmt: skip
_INDEXES_MAX, _VARINT_BYTES_MAX, _MORE = 20, 5, 0x80


class ProtobufFile:
    """The messages of one file of a registry, the last of the descriptors `texts`; raises TaskInvalid where one is missing."""

    def __init__(self, texts: Sequence[str]) -> None:
        try:
            self._pool = DescriptorPool()
            for serialized in _KNOWN.values():
                self._pool.AddSerializedFile(serialized)
            files = [_parse_file(text) for text in texts]
            for file in files:
                if file.name not in _KNOWN:
                    self._pool.Add(file)
            self._file = self._pool.FindFileByName(files[-1].name)
        except Exception as error:  # a strange schema makes the library raise nearly anything
            raise TaskInvalid("no_schema", f"not a Protobuf schema: {error!r:.200}") from error

    def decode(self, payload: bytes) -> str:
        """Decode what stands behind a frame to JSON; raises TaskInvalid where it is no message of this file."""
        indexes, behind = _read_indexes(payload)
        try:
            message = self._make_message(indexes)
            message.ParseFromString(payload[behind:])
            found = json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=self._pool)
            return json.dumps(found)
        except Exception as error:  # bytes that mean nothing make it raise nearly anything
            raise TaskInvalid("bad_task", f"not Protobuf of its schema: {error!r:.200}") from error

    def encode(self, former: bytes, text: str) -> bytes:
        """Encode JSON as the message that the former payload is; raises TaskInvalid where the schema does not take it."""
        indexes, behind = _read_indexes(former)
        try:
            before, message = self._make_message(indexes), self._make_message(indexes)
            before.ParseFromString(former[behind:])
            size = before.ByteSize()
            before.DiscardUnknownFields()
            if before.ByteSize() != size:
                raise ValueError("its schema does not name all fields that it has, and these would be lost")
            if not isinstance(given := json.loads(text), dict):
                raise ValueError("a message is written as a JSON object")
            json_format.ParseDict(given, message, descriptor_pool=self._pool)
            return former[:behind] + bytes(message.SerializeToString())
        except Exception as error:  # values of another shape make it raise nearly anything
            raise TaskInvalid("bad_value", f"{error!s:.200}") from error

    def _make_message(self, indexes: Sequence[int]) -> Any:
        descriptor = list(self._file.message_types_by_name.values())[indexes[0]]
        for index in indexes[1:]:
            descriptor = descriptor.nested_types[index]
        return message_factory.GetMessageClass(descriptor)()


def _parse_file(text: str) -> descriptor_pb2.FileDescriptorProto:
    name, _, encoded = text.partition("\n")
    file = descriptor_pb2.FileDescriptorProto()
    file.ParseFromString(base64.b64decode(encoded, validate=True))
    file.name = name
    return file


def _read_indexes(payload: bytes) -> tuple[list[int], int]:
    """Read the place of the message, and where it begins; raises TaskInvalid where there is none."""
    numbers = _read_zigzags(payload)
    try:
        count, behind = next(numbers)
        if count == 0:
            return [0], behind
        if not 0 < count <= _INDEXES_MAX:
            raise TaskInvalid("bad_task", f"{count} indexes of a message are no place in a file")
        found = [next(numbers) for _ in range(count)]
    except StopIteration:
        raise TaskInvalid("bad_task", "it ends before its message begins") from None
    indexes = [index for index, _ in found]
    if min(indexes) < 0:
        raise TaskInvalid("bad_task", f"{min(indexes)} is no index of a message")
    return indexes, found[-1][1]


def _read_zigzags(payload: bytes) -> Iterator[tuple[int, int]]:
    """Read signed varints, each with where it ends; stops where one is cut off or too long."""
    number = length = 0
    for at, byte in enumerate(payload):
        number |= (byte & ~_MORE) << 7 * length
        length += 1
        if not byte & _MORE:
            yield (number >> 1) ^ -(number & 1), at + 1
            number = length = 0
        elif length == _VARINT_BYTES_MAX:
            return
