import pytest

from rlwire.codecs.rfb.keysyms import KEYSYMS, keysym, name_of


@pytest.mark.each(
    ("key", "number"),
    [
        ("Left", 0xFF51), ("left", 0xFF51), ("f35", 0xFFE0), ("Delete", 0xFFFF), ("Prior", 0xFF55),
        ("KP_9", 0xFFB9), ("space", 0x20), ("A", 0x41), ("Agrave", 0xC0), ("ydiaeresis", 0xFF),
        ("asciitilde", 0x7E), ("\n", 0xFF0D), ("€", 0x0100_20AC), ("EuroSign", 0x20AC),
        ("😀", 0x0101_F600), (0, 0),
    ],
)  # fmt: skip
def test_keysym_of_a_key_name_is_found(key, number):
    assert keysym(key) == number


@pytest.mark.each("key", ["", "lefty", "\x00", "\x7f", -1, 2**32, "Agrav"])
def test_unknown_keys_are_rejected(key):
    with pytest.raises(ValueError, match=r"unknown key|keysym|no key"):
        keysym(key)


def test_every_name_maps_to_its_number():
    assert len(KEYSYMS) > 300
    for name, number in KEYSYMS.items():
        assert keysym(name) == number
        assert keysym(name_of(number)) == number


def test_keysym_of_a_latin1_character_is_its_code():
    codes = [*range(0x20, 0x7F), *range(0xA0, 0x100)]
    assert [keysym(chr(code)) for code in codes] == codes


@pytest.mark.each(
    ("number", "name"),
    [(0xFF51, "Left"), (0xFF55, "Page_Up"), (0x0100_20AC, "€"), (0x1234, "0x1234"), (0x61, "a")],
)
def test_name_of_a_keysym_is_found(number, name):
    assert name_of(number) == name
