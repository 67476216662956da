"""One gRPC call over a Unix socket without a gRPC library: as much HTTP/2 as a unary call without arguments needs.

The request's headers are sent as literals, which every HTTP/2 server must accept. Response headers need not be read:
an answer is a length-prefixed message, and a call that fails sends none. A large window is granted at the start, so
that flow control never stops an answer below the size that is accepted.
"""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

LARGEST_MESSAGE = 16 * 1024 * 1024
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK, _PADDED = 0x1, 0x4, 0x1, 0x8
_INITIAL_WINDOW_SETTING = 4
_WINDOW_SIZE = LARGEST_MESSAGE + 65536
_STREAM = 1


class GrpcError(RuntimeError):
    """The call failed; the text says how."""


async def call(socket: Path, method: str, timeout_seconds: float) -> bytes:
    """The answer to a unary call (`/v1.PodResourcesLister/List`) with an empty request."""
    try:
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await asyncio.open_unix_connection(str(socket))
            try:
                writer.write(_opening(method))
                return _message(await _body(reader, writer))
            finally:
                writer.close()
    except TimeoutError:
        raise GrpcError(f"{socket} gave no answer to {method} in {timeout_seconds:g} s") from None
    except (OSError, asyncio.IncompleteReadError) as error:
        raise GrpcError(f"{socket}: {error}") from error


def _opening(method: str) -> bytes:
    """Everything the client has to say: settings, window, headers, and an empty message."""
    headers = (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    )
    settings = struct.pack(">HI", _INITIAL_WINDOW_SETTING, _WINDOW_SIZE)
    block = b"".join(b"\x00" + _text(name) + _text(value) for name, value in headers)
    return b"".join(
        (
            _PREFACE,
            _frame(_SETTINGS, 0, 0, settings),
            _frame(_WINDOW, 0, 0, struct.pack(">I", _WINDOW_SIZE)),
            _frame(_HEADERS, _END_HEADERS, _STREAM, block),
            _frame(_DATA, _END_STREAM, _STREAM, bytes(5)),
        )
    )


def _text(value: str) -> bytes:
    """A string without Huffman coding; all of ours are shorter than 127 bytes."""
    encoded = value.encode()
    if len(encoded) >= 127:
        raise GrpcError(f"{value!r} is too long for a header")
    return bytes([len(encoded)]) + encoded


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


async def _body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The data of our stream up to its end."""
    body = bytearray()
    while True:
        head = await reader.readexactly(9)
        size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        stream = int.from_bytes(head[5:], "big") & 0x7FFFFFFF
        payload = await reader.readexactly(size)
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            writer.write(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif kind == _GOAWAY or (kind == _RESET and stream == _STREAM):
            raise GrpcError("the server ended the call")
        elif stream == _STREAM and kind in (_DATA, _HEADERS):
            body += _unpadded(payload, flags) if kind == _DATA else b""
            if len(body) > LARGEST_MESSAGE:
                raise GrpcError(f"the answer is larger than {LARGEST_MESSAGE} bytes")
            if flags & _END_STREAM:
                return bytes(body)


def _unpadded(payload: bytes, flags: int) -> bytes:
    return payload[1 : len(payload) - payload[0]] if flags & _PADDED else payload


def _message(body: bytes) -> bytes:
    """The one message in a body: a byte for compression, four for the length."""
    if len(body) < 5:
        raise GrpcError("the server refused the call")
    if body[0]:
        raise GrpcError("the answer is compressed, which was not asked for")
    size = int.from_bytes(body[1:5], "big")
    if len(body) != 5 + size:
        raise GrpcError("the answer is cut short")
    return body[5:]
