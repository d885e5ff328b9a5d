"""The properties extension: what a server keeps, and both clients with both servers."""

import functools
import re

import grpc
import numpy as np
import pytest
from dm_env import specs as dm_specs
from dm_env_rpc.v1 import connection, dm_env_rpc_pb2
from dm_env_rpc.v1.extensions import properties as their_properties

from rlwire import dm_env_rpc
from rlwire.codecs import dm_env_rpc as d
from rlwire.dm_env_rpc.properties import answer_request
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, RemoteProtocolError
from rlwire.sessions.dm_env_rpc import Code
from tests.dm_env_rpc.voyage import Voyage
from tests.raising import raised

MESSAGE = d.AnyMessage("type.googleapis.com/some.Thing", b"x")


@pytest.fixture
def weather():
    depths = np.float32([[1, 2], [3, 4]])
    return {"wind": 3, "sky.words": ["calm", "grey"], "sky.depths": depths, "sky.deep.m": MESSAGE}


def add(properties, values, key, **spec):
    """Add a property that is an entry of a dictionary."""
    properties.add(
        key, read=lambda: values[key], write=functools.partial(values.__setitem__, key), **spec
    )


def raising(error):
    def call(*_):
        raise error

    return call


@pytest.fixture
def properties(weather):
    properties = dm_env_rpc.Properties()
    add(properties, weather, "wind", dtype=np.int32, minimum=0, maximum=12)
    add(properties, weather, "sky.words", shape=(-1,), dtype=str, description="how it is")
    add(properties, weather, "sky.depths", shape=(2, 2), dtype=np.float32)
    add(properties, weather, "sky.deep.m", dtype=d.DataType.PROTO)
    properties.add("sky", read=lambda: weather["wind"], dtype=np.int32)
    properties.add("broken.inside", read=raising(AttributeError()))
    properties.add("secret", write=functools.partial(weather.__setitem__, "secret"))
    denied = raising(PermissionError("not for you"))
    properties.add("locked", read=denied, write=denied)
    properties.add("choosy", read=lambda: 1.0, write=raising(ValueError("will not do")))
    return properties


@pytest.fixture
def asked(properties):
    """Ask the service without any connection."""
    service = functools.partial(answer_request, properties)

    def ask(request, world=None):
        return d.decode_property_response(service(d.encode_property_request(request), world))

    return ask


class TestServerSide:
    def test_written_properties_have_the_dtype_of_their_spec(self, asked, weather):
        for key, value in (
            ("wind", np.int64(7)),
            ("sky.depths", np.zeros((2, 2))),
            ("sky.deep.m", d.AnyMessage("x/y", b"z")),
        ):
            assert asked(d.WritePropertyRequest(key, value)) == d.WritePropertyResponse()
            np.testing.assert_equal(weather[key], value)
        assert type(weather["wind"]) is np.int32
        assert weather["sky.depths"].dtype == np.float32

    def test_broadcast_property_values_are_limited_by_their_encoded_size(self, properties):
        value = bytes.fromhex("0a060a04000000007a0480808010")  # a float32 that stands for 2**25
        message = d.AnyMessage(d.PROPERTY_REQUEST_URL, b"\x12\x13\x0a\x01x\x12\x0e" + value)
        caught = raised(LimitExceeded, functools.partial(answer_request, properties), message, None)
        assert caught.limit == "expanded"
        assert caught.maximum < 2**21

    @pytest.mark.each(
        ("request_", "code", "text"),
        [
            (d.ReadPropertyRequest("rain"), Code.NOT_FOUND, "no property 'rain'; top level: wind"),
            (d.ReadPropertyRequest(""), Code.PERMISSION_DENIED, "'' has no value"),
            (d.ReadPropertyRequest("sky.deep"), Code.PERMISSION_DENIED, "'sky.deep' has no value"),
            (d.ReadPropertyRequest("secret"), Code.PERMISSION_DENIED, "cannot be read"),
            (d.WritePropertyRequest("sky", 1), Code.PERMISSION_DENIED, "cannot be written"),
            (d.WritePropertyRequest("rain", 1), Code.NOT_FOUND, "no property 'rain'"),
            (d.WritePropertyRequest("wind", 13), Code.INVALID_ARGUMENT, "13 is above max 12"),
            (d.WritePropertyRequest("wind", 2**40), Code.INVALID_ARGUMENT, "does not fit int32"),
            (d.WritePropertyRequest("wind", 0.5), Code.INVALID_ARGUMENT, " int32, not "),
            (d.WritePropertyRequest("wind", "x"), Code.INVALID_ARGUMENT, " int32, not "),
            (d.WritePropertyRequest("wind", [1]), Code.INVALID_ARGUMENT, r"shape \(\), not \(1,\)"),
            (d.WritePropertyRequest("sky.words", [1]), Code.INVALID_ARGUMENT, "must be text"),
            (d.WritePropertyRequest("sky.depths", [[1.0]]), Code.INVALID_ARGUMENT, r"\(2, 2\)"),
            (d.ListPropertyRequest("wind"), Code.INVALID_ARGUMENT, "'wind' has no properties"),
            (d.ListPropertyRequest("rain"), Code.NOT_FOUND, "no property 'rain'"),
        ],
    )
    def test_invalid_property_requests_are_rejected(self, asked, request_, code, text):
        refusal = raised(dm_env_rpc.StatusError, asked, request_)
        assert refusal.code == code
        assert re.search(text, refusal.message), refusal.message

    def test_exceptions_of_property_callbacks_propagate(self, asked):
        raised(AttributeError, asked, d.ReadPropertyRequest("broken.inside"))
        raised(PermissionError, asked, d.ReadPropertyRequest("locked"))
        raised(ValueError, asked, d.WritePropertyRequest("choosy", 2.0))

    def test_property_values_that_violate_their_spec_are_not_sent(self):
        properties = dm_env_rpc.Properties()
        properties.add("x", shape=(2,), read=lambda: [1.0])
        properties.add("words", shape=(2,), dtype=str, read=lambda: ["a", 1])
        properties.add("narrow", shape=(2,), dtype=np.float32, read=lambda: [2**24 + 1, 0.5])
        service = functools.partial(answer_request, properties)
        for key in ("words", "narrow"):
            read = functools.partial(service, d.encode_property_request(d.ReadPropertyRequest(key)))
            assert key in str(raised(EncodeError, read, None))
        with pytest.raises(EncodeError, match=r"must have the shape \(2,\), not \(1,\)"):
            service(d.encode_property_request(d.ReadPropertyRequest("x")), None)

    def test_invalid_property_registrations_are_rejected(self, properties):
        assert "'wind'" in str(raised(ValueError, properties.add, "wind", read=list))
        assert "'rain'" in str(raised(ValueError, properties.add, "rain"))
        for key in ("", ".", "a.", "a..b"):
            assert "empty part" in str(raised(ValueError, properties.add, key, read=list))
        raised(EncodeError, properties.add, "rain", dtype=np.complex64, read=list)

    def test_world_properties_override_server_properties(self, asked, weather):
        class World:
            properties = dm_env_rpc.Properties()

        World.properties.add("wind", dtype=str, read=lambda: "of this world")
        World.properties.add("sky.birds", dtype=np.int32, read=lambda: 2)
        assert asked(d.ReadPropertyRequest("wind"), World).value == "of this world"
        assert asked(d.ReadPropertyRequest("sky.words"), World).value.tolist() == ["calm", "grey"]
        assert asked(d.ReadPropertyRequest("sky.birds"), World).value == 2
        listed = {each.spec.name: each for each in asked(d.ListPropertyRequest(), World).values}
        assert listed["wind"].spec.dtype == d.DataType.STRING
        assert listed["sky"].is_listable
        assert listed["sky"].is_readable
        below = {each.spec.name for each in asked(d.ListPropertyRequest("sky"), World).values}
        assert below == {"sky.birds", "sky.words", "sky.depths", "sky.deep"}

    def test_undecodable_property_requests_are_rejected(self, properties):
        service = functools.partial(answer_request, properties)
        empty, wrong = (d.AnyMessage(d.PROPERTY_REQUEST_URL, value) for value in (b"", b"\xff"))
        assert "no payload" in str(raised(dm_env_rpc.StatusError, service, empty, None))
        raised(DecodeError, service, wrong, None)


def test_client_rejects_a_reply_of_another_type():
    class Heard:
        def extension(self, message):
            assert d.decode_property_request(message)
            return self.response

    heard = Heard()
    client = dm_env_rpc.PropertiesExtension(heard)
    heard.response = d.encode_property_response(d.WritePropertyResponse())
    assert "not a WritePropertyResponse" in str(raised(RemoteProtocolError, client.read, "a"))
    heard.response = d.AnyMessage(heard.response.type_url, b"")
    assert "not nothing" in str(raised(RemoteProtocolError, client.read, "a"))
    heard.response = d.encode_property_response(d.ReadPropertyResponse(np.float32([1, 2])))
    assert client.read("a").tolist() == [1, 2]


# ---- over connections ---------------------------------------------------------------------------


@pytest.fixture
def server(workers, properties):
    class Sea(Voyage):
        def __init__(self):
            super().__init__()
            self.properties = dm_env_rpc.Properties()
            add(self.properties, {"salt": 0.5}, "salt")

    with dm_env_rpc.Server(
        dm_env_rpc.EnvironmentWorlds(Sea), "127.0.0.1:0", workers=workers, properties=properties
    ) as server:
        yield server


def flags(listed):
    each = {"r": listed.readable, "w": listed.writable, "l": listed.listable}
    return "".join(name for name, is_so in each.items() if is_so)


def test_reference_client_uses_properties_of_the_rlwire_server(server, weather):
    with grpc.insecure_channel(str(server.address)) as channel:
        their = connection.Connection(channel)
        extension = their_properties.PropertiesExtension(their)
        extension["wind"] = 4
        assert weather["wind"] == extension["wind"] == 4
        extension["sky.words"] = ["one", "two", "three"]
        assert extension["sky.words"].tolist() == ["one", "two", "three"]
        np.testing.assert_array_equal(extension["sky.depths"], weather["sky.depths"])
        extension["secret"] = 0.5
        assert weather["secret"] == 0.5
        outermost, sky = extension.specs(), extension.specs("sky")
        assert {name: flags(each) for name, each in {**outermost, **sky}.items()} == {
            "wind": "rw", "sky": "rl", "broken": "l", "secret": "w", "locked": "rw",
            "choosy": "rw", "sky.words": "rw", "sky.depths": "rw", "sky.deep": "l",
        }  # fmt: skip
        assert outermost["wind"].spec == dm_specs.DiscreteArray(13, np.int32)
        assert outermost["broken"].spec is None
        assert sky["sky.words"].description == "how it is"
        assert sky["sky.words"].spec.shape == (-1,)
        assert set(extension.specs("sky.deep")) == {"sky.deep.m"}
        raised(KeyError, extension.__getitem__, "rain")
        raised(PermissionError, extension.__setitem__, "sky", 1)
        for call, *given in ((extension.__setitem__, "wind", 13), (extension.list, "wind")):
            assert "Property value error" in str(raised(ValueError, call, *given))
        their.send(dm_env_rpc_pb2.JoinWorldRequest())
        assert extension["salt"] == 0.5


def test_rlwire_client_uses_properties_of_the_reference_server(reference_server):
    with dm_env_rpc.Client(reference_server) as client:
        extension = dm_env_rpc.PropertiesExtension(client)
        assert extension.read("motto") == "fluctuat"
        extension.write("depth.mean", 4.25)
        assert extension.read("depth.mean") == 4.25
        motto = d.TensorSpec("motto", (), d.DataType.STRING)
        assert set(map(repr, extension.list())) == {
            repr(d.PropertySpec(motto, True, False, False, "the motto")),
            repr(d.PropertySpec(d.TensorSpec("depth"), False, False, True)),
        }
        (mean,) = extension.list("depth")
        assert mean.is_writable
        assert (mean.spec.name, mean.spec.dtype) == ("depth.mean", d.DataType.DOUBLE)
        assert "no such property" in str(raised(KeyError, extension.read, "height"))
        assert "carved in stone" in str(raised(PermissionError, extension.write, "motto", "x"))
        assert "a double" in str(raised(ValueError, extension.write, "depth.mean", "deep"))
