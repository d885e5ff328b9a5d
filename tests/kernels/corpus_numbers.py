"""Lists of numbers for the fuzz driver."""

import random
import struct


def texts():
    """Lists of all sorts of numbers, good as floats or integers or booleans."""
    chance = random.Random(5)
    yield "0.54,0.95,-1,+2.5,1e5,-1.5E-7,.5,5.,00012.50"
    yield "nan,inf,-inf,Infinity,-NaN"
    yield "true,false,true"
    yield "0,-1,127,-128,255,32767,-32768,65535"
    yield "2147483647,-2147483648,4294967295,9223372036854775807,-9223372036854775808"
    yield "18446744073709551615,18446744073709551616,100000000000000000000"
    yield "1.7976931348623157e308,2.2250738585072014e-308,4.9e-324,2.4703282292062327e-324"
    yield "9007199254740993,9007199254740992.5,16777217,16777217.0000000000000001"
    yield "3.4028235677973366e38,1.1754943508222875e-38,7.006492321624085e-46,65520,5.96e-08"
    yield "1e22,1e23,1e-22,123456789012345678,0.000000000000000000000000000000000001"
    yield "1" + "0" * 400 + ",0." + "0" * 400 + "1," + "9" * 800
    yield "2.2250738585072011e-308,6.929001713869936e236,8.98846567431158e307"
    for _ in range(20):
        value = struct.unpack("<d", struct.pack("<Q", chance.getrandbits(64)))[0]
        places = chance.randrange(1, 30)
        yield f"{value!r},{value:.{places}e},{chance.uniform(-9, 9):.4f},{chance.randrange(1000)}"


def messages():
    return (text.encode() for text in texts())
