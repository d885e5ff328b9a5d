"""The properties extension: what a server keeps, and both clients with both servers."""

import functools

import grpc
import numpy as np
import pytest
from dm_env import specs as dm_specs
from dm_env_rpc.v1 import connection, dm_env_rpc_pb2
from dm_env_rpc.v1.extensions import properties as their_properties

from rlwire.codecs.dm_env_rpc import (
    PROPERTY_REQUEST_URL,
    AnyMessage,
    DataType,
    ListPropertyRequest,
    PropertySpec,
    ReadPropertyRequest,
    ReadPropertyResponse,
    TensorSpec,
    WritePropertyRequest,
    WritePropertyResponse,
    decode_property_request,
    decode_property_response,
    encode_property_request,
    encode_property_response,
    make_spec,
)
from rlwire.dm_env_rpc import (
    Client,
    EnvironmentWorlds,
    Properties,
    PropertiesExtension,
    Server,
    StatusError,
)
from rlwire.dm_env_rpc.properties import PropertyService
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, RemoteProtocolError
from rlwire.sessions.dm_env_rpc import Code


class Weather:
    def __init__(self):
        self.wind = 3
        self.words = ["calm", "grey"]
        self.depths = np.float32([[1, 2], [3, 4]])
        self.secret = 5.0
        self.broken = {}
        self.message = AnyMessage("type.googleapis.com/some.Thing", b"x")


@pytest.fixture
def weather():
    return Weather()


def add_attribute(properties, key, owner, name=None, writable=False, **spec):
    name = name or key.rpartition(".")[2]
    write = (lambda value: setattr(owner, name, value)) if writable else None
    properties.add(key, read=lambda: getattr(owner, name), write=write, **spec)


@pytest.fixture
def properties(weather):
    properties = Properties()
    attribute = functools.partial(add_attribute, properties)
    attribute("wind", weather, dtype=np.int32, minimum=0, maximum=12, writable=True)
    attribute("sky.words", weather, shape=(-1,), dtype=str, writable=True, description="how it is")
    attribute("sky.depths", weather, shape=(2, 2), dtype=np.float32, writable=True)
    attribute("sky", weather, "wind", dtype=np.int32)
    attribute("sky.deep.message", weather, "message", dtype=DataType.PROTO, writable=True)
    attribute("broken.inside", weather, "nothing")
    properties.add(
        "secret", write=lambda value: setattr(weather, "secret", value), description="write only"
    )
    properties.add("locked", read=_denied, write=_denied)
    properties.add("choosy", read=lambda: 1.0, write=_wrong)
    return properties


def _denied(*_):
    raise PermissionError("not for you")


def _wrong(value):
    raise ValueError(f"{value} will not do")


@pytest.fixture
def asked(properties):
    """Ask the service without any connection."""
    service = PropertyService(properties)

    def ask(request, world=None):
        return decode_property_response(service(encode_property_request(request), world))

    return ask


def refused(asked, request):
    with pytest.raises(StatusError) as raised:
        asked(request)
    return Code(raised.value.code), raised.value.message


class TestServerSide:
    def test_writing(self, asked, weather):
        write = lambda key, value: asked(WritePropertyRequest(key, value))  # noqa: E731
        assert write("wind", np.int64(7)) == WritePropertyResponse()
        assert (weather.wind, type(weather.wind)) == (7, np.int32)
        write("sky.words", np.array(["a", "b", "c"]))
        assert weather.words.tolist() == ["a", "b", "c"]
        write("sky.depths", np.zeros((2, 2)))
        assert weather.depths.dtype == np.float32
        write("secret", np.float64(0.5))
        assert weather.secret == 0.5
        write("sky.deep.message", AnyMessage("x/y", b"z"))
        assert weather.message == AnyMessage("x/y", b"z")

    def test_expansion_of_a_value_is_bounded_by_its_bytes(self, properties):
        value = bytes.fromhex("0a060a04000000007a0480808010")  # a float32 that stands for 2**25
        wire = b"\x12\x13\x0a\x01x\x12\x0e" + value
        with pytest.raises(LimitExceeded) as caught:
            PropertyService(properties)(AnyMessage(PROPERTY_REQUEST_URL, wire), None)
        assert caught.value.limit == "expanded"
        assert caught.value.maximum < 2**21

    def test_listing(self, asked):
        outermost = {each.spec.name: each for each in asked(ListPropertyRequest()).values}
        assert set(outermost) == {"wind", "sky", "broken", "secret", "locked", "choosy"}
        flags = lambda p: (p.is_readable, p.is_writable, p.is_listable)  # noqa: E731
        assert flags(outermost["wind"]) == (True, True, False)
        assert outermost["wind"].spec == make_spec("wind", (), np.int32, 0, 12)
        assert flags(outermost["sky"]) == (True, False, True)
        assert flags(outermost["secret"]) == (False, True, False)
        assert flags(outermost["broken"]) == (False, False, True)
        assert outermost["broken"].spec == TensorSpec("broken")
        sky = {each.spec.name: each for each in asked(ListPropertyRequest("sky")).values}
        assert set(sky) == {"sky.words", "sky.depths", "sky.deep"}
        assert sky["sky.words"].description == "how it is"
        assert sky["sky.words"].spec == TensorSpec("sky.words", (-1,), DataType.STRING)
        assert flags(sky["sky.deep"]) == (False, False, True)
        (deep,) = asked(ListPropertyRequest("sky.deep")).values
        assert deep.spec.name == "sky.deep.message"

    @pytest.mark.parametrize(
        ("request_", "code", "text"),
        [
            (ReadPropertyRequest("rain"), Code.NOT_FOUND, "no property 'rain'; top level: wind"),
            (ReadPropertyRequest(""), Code.PERMISSION_DENIED, "'' has no value"),
            (ReadPropertyRequest("sky.deep"), Code.PERMISSION_DENIED, "'sky.deep' has no value"),
            (ReadPropertyRequest("secret"), Code.PERMISSION_DENIED, "cannot be read"),
            (WritePropertyRequest("sky", 1), Code.PERMISSION_DENIED, "cannot be written"),
            (WritePropertyRequest("rain", 1), Code.NOT_FOUND, "no property 'rain'"),
            (WritePropertyRequest("wind", 13), Code.INVALID_ARGUMENT, "13 is above max 12"),
            (WritePropertyRequest("wind", 2**40), Code.INVALID_ARGUMENT, "does not fit int32"),
            (WritePropertyRequest("wind", 0.5), Code.INVALID_ARGUMENT, " int32, not "),
            (WritePropertyRequest("wind", "x"), Code.INVALID_ARGUMENT, " int32, not "),
            (WritePropertyRequest("wind", [1]), Code.INVALID_ARGUMENT, r"shape \(\), not \(1,\)"),
            (WritePropertyRequest("sky.words", [1]), Code.INVALID_ARGUMENT, "must be text"),
            (WritePropertyRequest("sky.depths", [[1.0]]), Code.INVALID_ARGUMENT, r"\(2, 2\)"),
            (ListPropertyRequest("wind"), Code.INVALID_ARGUMENT, "'wind' has no properties"),
            (ListPropertyRequest("rain"), Code.NOT_FOUND, "no property 'rain'"),
        ],
    )
    def test_invalid_property_requests_are_rejected(self, asked, request_, code, text):
        import re

        refusal = refused(asked, request_)
        assert refusal[0] == code
        assert re.search(text, refusal[1]), refusal[1]

    def test_callbacks_that_raise(self, asked):
        with pytest.raises(AttributeError):
            asked(ReadPropertyRequest("broken.inside"))
        with pytest.raises(PermissionError):
            asked(ReadPropertyRequest("locked"))
        with pytest.raises(ValueError, match="will not do"):
            asked(WritePropertyRequest("choosy", 2.0))

    def test_value_outside_its_spec_is_not_sent(self):
        properties = Properties()
        properties.add("x", shape=(2,), read=lambda: [1.0])
        service = PropertyService(properties)
        with pytest.raises(EncodeError, match=r"must have the shape \(2,\), not \(1,\)"):
            service(encode_property_request(ReadPropertyRequest("x")), None)

    def test_registering(self, properties, weather):
        with pytest.raises(ValueError, match="'wind'"):
            properties.add("wind", read=lambda: 1)
        with pytest.raises(ValueError, match="'rain' needs read"):
            properties.add("rain")
        for key in ("", ".", "a.", "a..b"):
            with pytest.raises(ValueError, match="empty part"):
                properties.add(key, read=lambda: 1)
        with pytest.raises(EncodeError):
            properties.add("rain", dtype=np.complex64, read=lambda: 1)

    def test_a_world_before_the_server(self, asked, weather):
        class World:
            properties = Properties()

        World.properties.add("wind", dtype=str, read=lambda: "of this world")
        World.properties.add("sky.birds", dtype=np.int32, read=lambda: 2)
        assert asked(ReadPropertyRequest("wind"), World).value == "of this world"
        assert asked(ReadPropertyRequest("sky.words"), World).value.tolist() == ["calm", "grey"]
        assert asked(ReadPropertyRequest("sky.birds"), World).value == 2
        listed = {each.spec.name: each for each in asked(ListPropertyRequest(), World).values}
        assert listed["wind"].spec.dtype == DataType.STRING
        assert listed["sky"].is_listable
        assert listed["sky"].is_readable
        below = {each.spec.name for each in asked(ListPropertyRequest("sky"), World).values}
        assert below == {"sky.birds", "sky.words", "sky.depths", "sky.deep"}

    def test_requests_that_are_none(self, properties):
        service = PropertyService(properties)
        with pytest.raises(StatusError, match="no payload"):
            service(AnyMessage(PROPERTY_REQUEST_URL, b""), None)
        with pytest.raises(DecodeError):
            service(AnyMessage(PROPERTY_REQUEST_URL, b"\xff"), None)


class TestClientSide:
    def client_that_hears(self, response):
        class Heard:
            def extension(self, message):
                assert decode_property_request(message)
                if isinstance(response, Exception):
                    raise response
                return response

        return PropertiesExtension(Heard())

    def test_an_answer_to_something_else(self):
        wrong = encode_property_response(WritePropertyResponse())
        with pytest.raises(RemoteProtocolError, match="not a WritePropertyResponse"):
            self.client_that_hears(wrong).read("a")
        with pytest.raises(RemoteProtocolError, match="not nothing"):
            self.client_that_hears(AnyMessage(wrong.type_url, b"")).read("a")
        right = encode_property_response(ReadPropertyResponse(np.float32([1, 2])))
        assert self.client_that_hears(right).read("a").tolist() == [1, 2]


# ---- over connections ---------------------------------------------------------------------------


@pytest.fixture(params=["threads", "asyncio"])
def server(request, properties, voyage):
    class Sea(voyage.Voyage):
        def __init__(self):
            super().__init__()
            self.salt = 0.5
            self.properties = Properties()
            add_attribute(self.properties, "salt", self, writable=True)

    with Server(
        EnvironmentWorlds(Sea), "127.0.0.1:0", workers=request.param, properties=properties
    ) as server:
        yield server


def test_their_client_with_our_server(server, weather):
    with grpc.insecure_channel(str(server.address)) as channel:
        their = connection.Connection(channel)
        extension = their_properties.PropertiesExtension(their)
        extension["wind"] = 4
        assert weather.wind == extension["wind"] == 4
        extension["sky.words"] = ["one", "two", "three"]
        assert extension["sky.words"].tolist() == ["one", "two", "three"]
        np.testing.assert_array_equal(extension["sky.depths"], weather.depths)
        outermost = extension.specs()
        assert outermost["wind"].spec == dm_specs.DiscreteArray(13, np.int32)
        assert outermost["wind"].writable
        assert outermost["broken"].spec is None
        assert set(extension.specs("sky")) == {"sky.words", "sky.depths", "sky.deep"}
        with pytest.raises(KeyError):
            extension["rain"]
        with pytest.raises(PermissionError):
            extension["sky"] = 1
        with pytest.raises(ValueError, match="Property value error"):
            extension["wind"] = 13
        with pytest.raises(ValueError, match="Property value error"):
            extension.list("wind")
        their.send(dm_env_rpc_pb2.JoinWorldRequest())
        assert extension["salt"] == 0.5


def test_our_client_with_their_server(reference_server):
    with Client(reference_server) as client:
        extension = PropertiesExtension(client)
        assert extension.read("motto") == "fluctuat"
        extension.write("depth.mean", 4.25)
        assert extension.read("depth.mean") == 4.25
        motto = TensorSpec("motto", (), DataType.STRING)
        assert set(map(repr, extension.list())) == {
            repr(PropertySpec(motto, True, False, False, "the motto")),
            repr(PropertySpec(TensorSpec("depth"), False, False, True)),
        }
        (mean,) = extension.list("depth")
        assert mean.is_writable
        assert (mean.spec.name, mean.spec.dtype) == ("depth.mean", DataType.DOUBLE)
        with pytest.raises(KeyError, match="no such property"):
            extension.read("height")
        with pytest.raises(PermissionError, match="carved in stone"):
            extension.write("motto", "x")
        with pytest.raises(ValueError, match="a double is needed"):
            extension.write("depth.mean", "deep")
