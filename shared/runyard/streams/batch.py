"""The framing in which the frame script publishes what it stored: one message per accepted batch.

    version   1 byte, 1
    first     8 bytes, the first frame's sequence number; the others follow without a hole
    count     4 bytes
    lengths   count times: 4 bytes length of the event (0: answer text), 4 bytes length of the data
    bodies    count times: event, data

Integers are big-endian. The numbers stand in front so that a reader finds them with one unpack.
"""

import struct

from runyard.frames import Frame

VERSION = 1

_HEAD = struct.Struct(">BQI")


def decode_batch(message: bytes) -> list[Frame]:
    """The frames of a batch, at least one, in order.

    Raises:
        ValueError: it is not a batch that this version can read. Its frames are in the stream all the same.
    """
    try:
        version, first, count = _HEAD.unpack_from(message)
        if version != VERSION:
            raise ValueError(f"a batch of version {version}")
        lengths = struct.unpack_from(f">{2 * count}I", message, _HEAD.size)
    except struct.error as error:
        raise ValueError("a batch cut short") from error
    at = _HEAD.size + 8 * count
    frames = []
    for seq, event_length, data_length in zip(range(first, first + count), lengths[::2], lengths[1::2], strict=True):
        event = None
        if event_length:
            event = message[at : at + event_length].decode()
            at += event_length
        frames.append(Frame(seq, event, message[at : at + data_length]))
        at += data_length
    if at != len(message) or not frames:
        raise ValueError("a batch whose lengths do not add up")
    return frames
