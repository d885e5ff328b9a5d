"""TensorBoard's event files, read by TensorBoard or, where it is not, by tensorboardX."""

import importlib
import struct


def read_events(directory):
    """Return {tag: [(step, value or histogram)]} of all event files in a directory."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        return read_events_with_tensorboardx(directory)
    accumulator = EventAccumulator(str(directory))
    accumulator.Reload()
    found = {}
    tags = accumulator.Tags()
    for tag in tags["scalars"]:
        found[tag] = [(event.step, event.value) for event in accumulator.Scalars(tag)]
    for tag in tags["histograms"]:
        found[tag] = [(e.step, e.histogram_value.num) for e in accumulator.Histograms(tag)]
    return found


def read_events_with_tensorboardx(directory):
    event_pb2 = importlib.import_module("tensorboardX.proto.event_pb2")
    found = {}
    for path in sorted(directory.glob("events.out.tfevents.*")):
        data = path.read_bytes()
        at = 0
        while at < len(data):
            # TFRecord: length (8), checksum (4), the event, checksum (4).
            (size,) = struct.unpack_from("<Q", data, at)
            event = event_pb2.Event.FromString(data[at + 12 : at + 12 + size])
            at += 16 + size
            for value in event.summary.value:
                kind = value.WhichOneof("value")
                result = value.simple_value if kind == "simple_value" else value.histo.num
                found.setdefault(value.tag, []).append((event.step, result))
    return found
