"""dm_env_rpc messages that cannot be sent, and those whose form is ours to choose."""

import numpy as np
import pytest

from rlwire.codecs import dm_env_rpc as d
from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import Limits
from tests.raising import raised


@pytest.mark.parametrize("decode", [d.decode_request, d.decode_response])
def test_message_without_payload_is_decoded_as_none(decode):
    assert decode(b"") is None
    assert decode(b"\x58\x01\x9a\x01\x01x") is None  # unknown fields only


def test_many_tensors_in_one_message_round_trip():
    """More than a draft holds without the heap."""
    settings = {f"setting {number}": np.int64(number) for number in range(100)}
    settings["long" * 100] = np.arange(5)
    decoded = d.decode_request(d.encode_request(d.CreateWorldRequest(settings)))
    assert list(decoded.settings) == list(settings)
    assert all(np.array_equal(decoded.settings[name], settings[name]) for name in settings)


def test_bound_of_another_shape_is_decoded_flat():
    bound = np.arange(3, dtype=np.int32)
    for shape in ((2, 2), (-1,), (), (2**31 - 1,) * 32):
        spec = d.TensorSpec("x", shape, d.DataType.INT32, bound)
        response = d.ResetResponse(d.ActionObservationSpecs({1: spec}))
        decoded = d.decode_response(d.encode_response(response))
        assert decoded.specs.actions[1].min.tolist() == [0, 1, 2]


SPEC = d.TensorSpec("x", (), d.DataType.INT32)


def with_spec(spec, uid=1):
    return d.JoinWorldResponse(d.ActionObservationSpecs({}, {uid: spec}))


ASKED, SPEC_AT = "$.step.requested_observations", "$.join_world.specs.observations[1]"
TWO_DETAILS = d.Status(5, "", (d.AnyMessage(), b"x"))
TEXT_BOUND = d.TensorSpec("x", (), d.DataType.INT32, "low")
BOOL_BOUND = d.TensorSpec("x", (), d.DataType.BOOL, None, np.bool_(True))
REFUSED = [
    (5, "int is .*Environment", ""), (None, "NoneType is .*Environment", ""),
    (d.Step(), "encode_step_request", ""), (d.StepResult(), "encode_step_response", ""),
    (d.ResetRequest([1]), "expected a mapping, not list", "$.reset.settings"),
    (d.ResetRequest({1: 2}), "expected str, not int", "$.reset.settings"),
    (d.ResetRequest({"a": 1j}), "complex", "$.reset.settings.a"),
    (d.ResetRequest({"a": [[1], [2, 3]]}), "lists of different lengths", "$.reset.settings.a"),
    (d.ResetRequest({"\udc80": 1}), "not valid Unicode", "$.reset.settings"),
    (d.StepRequest({3: object()}), "type object is not", "$.step.actions[3]"),
    (d.StepRequest({-1: 1}), "UID.*-1|-1.*UID", "$.step.actions"),
    (d.StepRequest({2**64: 1}), "UID", "$.step.actions"),
    (d.StepRequest({"a": 1}), "a UID must be int, not str", "$.step.actions"),
    (d.StepRequest({}, [1, -1]), "UID.*-1|-1.*UID", f"{ASKED}[1]"),
    (d.StepRequest({}, 3), "expected several values, not int", ASKED),
    (d.DestroyWorldRequest(7), "expected str, not int", "$.destroy_world.world_name"),
    (d.JoinWorldRequest("\ud800"), "not valid Unicode", "$.join_world.world_name"),
    (d.AnyMessage(1), "expected str, not int", "$.extension.type_url"),
    (d.AnyMessage("", "x"), "expected bytes, not str", "$.extension.value"),
    (d.StepResponse("on"), "expected int, not str", "$.step.state"),
    (d.StepResponse(2**31), "does not fit 32 bits", "$.step.state"),
    (d.StepResponse(1, {2: {}}), "type dict is not", "$.step.observations[2]"),
    (d.ResetResponse({}), "expected ActionObservationSpecs", "$.reset.specs"),
    (with_spec(3), "expected TensorSpec", SPEC_AT), (with_spec(SPEC, 2**64), "UID", SPEC_AT[:-3]),
    (with_spec(d.TensorSpec("x", (1, 2**31))), "does not fit 32 bits", f"{SPEC_AT}.shape[1]"),
    (with_spec(TEXT_BOUND), "dtype <U3 .*int32", f"{SPEC_AT}.min"),
    (with_spec(BOOL_BOUND), "a bound cannot be of type bool", f"{SPEC_AT}.max"),
    (d.Status("5"), "expected int, not str", "$.error.code"),
    (d.Status(2**31), "does not fit 32 bits", "$.error.code"),
    (TWO_DETAILS, "expected AnyMessage, not bytes", "$.error.details[1]"),
]  # fmt: skip


@pytest.mark.each(("message", "words", "path"), REFUSED)
def test_unencodable_messages_are_rejected_with_their_path(message, words, path):
    response = isinstance(
        message, d.StepResponse | d.ResetResponse | d.JoinWorldResponse | d.Status | d.StepResult
    )
    encode = d.encode_response if response else d.encode_request
    with pytest.raises(EncodeError) as caught:
        encode(message)
    assert caught.match(words)
    assert caught.value.path == path


def test_encoder_rejects_a_request_as_response_and_vice_versa():
    raised(EncodeError, d.encode_response, d.StepRequest())
    raised(EncodeError, d.encode_request, d.Status())


def test_property_messages_of_another_type_are_rejected():
    for url in ("", "type.googleapis.com/dm_env_rpc.v1.Tensor", d.PROPERTY_RESPONSE_URL):
        raised(DecodeError, d.decode_property_request, d.AnyMessage(url, b""))
    # Only what follows the last slash names the type.
    url = d.PROPERTY_REQUEST_URL.replace("type.googleapis.com", "example.org/types")
    request = d.encode_property_request(d.ReadPropertyRequest("a"))
    assert d.decode_property_request(d.AnyMessage(url, request.value)) == d.ReadPropertyRequest("a")
    raised(EncodeError, d.encode_property_request, d.ReadPropertyResponse())


def test_request_kind_is_that_of_the_last_payload():
    leave = d.encode_request(d.LeaveWorldRequest())
    step = d.encode_request(d.StepRequest({1: 1.0}))
    assert d.request_kind(b"") is None
    assert d.request_kind(leave) == "leave_world"
    assert d.request_kind(step) == "step"
    assert d.request_kind(leave + step) == "step"
    assert d.request_kind(step + leave) == "leave_world"
    for wire, limits in ((b"\x1a\x05", None), (step, Limits(message=3))):
        raised((DecodeError, LimitExceeded), d.request_kind, wire, limits=limits)


TOO_MUCH = [
    (d.ResetRequest({"a": 1, "b": 2, "c": 3}), Limits(items=2), "items", 3),
    (d.StepRequest({}, [1, 2, 3]), Limits(items=2), "items", 3),
    (d.StepRequest({1: 1, 2: 2}, [3]), Limits(items=2), "items", 3),
    (d.DestroyWorldRequest("abc"), Limits(string=2), "string", 3),
    (d.ResetRequest({"äb": 1}), Limits(string=2), "string", 3),
    (d.DestroyWorldRequest("abc"), Limits(message=6), "message", 7),
    (d.StepRequest({1: bytearray(50)}), Limits(message=20), "message", 65),
    (d.StepRequest({1: np.zeros((1, 1, 1))}), Limits(dims=2), "dims", 3),
]


@pytest.mark.each(("message", "limits", "name", "size"), TOO_MUCH)
def test_encoder_rejects_messages_over_the_limits(message, limits, name, size):
    d.encode_request(message)
    caught = raised(LimitExceeded, d.encode_request, message, limits=limits)
    assert (caught.limit, caught.size) == (name, size)
