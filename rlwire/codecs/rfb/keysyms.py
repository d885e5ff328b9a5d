"""Keysyms, the key numbers of RFB's KeyEvent, by their names in X11.

A printable Latin-1 character is its own number, any other is 0x01000000 plus its code point.

Source: X Window System Protocol, appendix A (KEYSYM Encoding).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

_UNICODE = 0x0100_0000

# Names of consecutive numbers. "|" separates names of one number; `name_of` returns the first.
_RUNS = {
    0x20: """space exclam quotedbl numbersign dollar percent ampersand apostrophe|quoteright
        parenleft parenright asterisk plus comma minus period slash
        0 1 2 3 4 5 6 7 8 9 colon semicolon less equal greater question
        at A B C D E F G H I J K L M N O P Q R S T U V W X Y Z
        bracketleft backslash bracketright asciicircum underscore
        grave|quoteleft a b c d e f g h i j k l m n o p q r s t u v w x y z
        braceleft bar braceright asciitilde""",
    0xA0: """nobreakspace exclamdown cent sterling currency yen brokenbar section
        diaeresis copyright ordfeminine guillemotleft notsign hyphen registered macron
        degree plusminus twosuperior threesuperior acute mu paragraph periodcentered
        cedilla onesuperior masculine guillemotright onequarter onehalf threequarters questiondown
        Agrave Aacute Acircumflex Atilde Adiaeresis Aring AE Ccedilla
        Egrave Eacute Ecircumflex Ediaeresis Igrave Iacute Icircumflex Idiaeresis
        ETH|Eth Ntilde Ograve Oacute Ocircumflex Otilde Odiaeresis multiply
        Oslash Ugrave Uacute Ucircumflex Udiaeresis Yacute THORN|Thorn ssharp
        agrave aacute acircumflex atilde adiaeresis aring ae ccedilla
        egrave eacute ecircumflex ediaeresis igrave iacute icircumflex idiaeresis
        eth ntilde ograve oacute ocircumflex otilde odiaeresis division
        oslash ugrave uacute ucircumflex udiaeresis yacute thorn ydiaeresis""",
    0x20AC: "EuroSign",
    0xFE03: "ISO_Level3_Shift",
    0xFE20: "ISO_Left_Tab",
    0xFE50: """dead_grave dead_acute dead_circumflex dead_tilde dead_macron dead_breve
        dead_abovedot dead_diaeresis dead_abovering dead_doubleacute dead_caron dead_cedilla
        dead_ogonek""",
    0xFF08: "BackSpace Tab Linefeed Clear",
    0xFF0D: "Return",
    0xFF13: "Pause Scroll_Lock Sys_Req",
    0xFF1B: "Escape",
    0xFF20: "Multi_key Kanji Muhenkan Henkan Romaji Hiragana Katakana",
    0xFF50: "Home Left Up Right Down Page_Up|Prior Page_Down|Next End Begin",
    0xFF60: "Select Print Execute Insert",
    0xFF65: "Undo Redo Menu Find Cancel Help Break",
    0xFF7E: "Mode_switch Num_Lock KP_Space",
    0xFF89: "KP_Tab",
    0xFF8D: "KP_Enter",
    0xFF91: "KP_F1 KP_F2 KP_F3 KP_F4 KP_Home KP_Left KP_Up KP_Right KP_Down",
    0xFF9A: "KP_Page_Up|KP_Prior KP_Page_Down|KP_Next KP_End KP_Begin KP_Insert KP_Delete",
    0xFFAA: "KP_Multiply KP_Add KP_Separator KP_Subtract KP_Decimal KP_Divide",
    0xFFB0: "KP_0 KP_1 KP_2 KP_3 KP_4 KP_5 KP_6 KP_7 KP_8 KP_9",
    0xFFBD: "KP_Equal",
    0xFFBE: " ".join(f"F{number}" for number in range(1, 36)),
    0xFFE1: """Shift_L Shift_R Control_L Control_R Caps_Lock Shift_Lock
        Meta_L Meta_R Alt_L Alt_R Super_L Super_R Hyper_L Hyper_R""",
    0xFFFF: "Delete",
}


def _pairs() -> Iterator[tuple[str, int]]:
    for first, names in _RUNS.items():
        for number, same in enumerate(names.split(), first):
            for name in same.split("|"):
                yield name, number


KEYSYMS: Mapping[str, int] = MappingProxyType(dict(_pairs()))
"""Numbers by X11 names, such as "Left", "space", "a", "Return"."""

_NAMES: dict[int, str] = {number: name for name, number in reversed(list(_pairs()))}
# Names of keys without a character differ by more than case.
_ANY_CASE = {name.lower(): number for name, number in _pairs() if number >= 0xFE00}


def keysym(key: int | str) -> int:
    """Return the number of a key: an X11 name, a character or a number; ValueError if unknown."""
    if not isinstance(key, str):
        number = int(key)
        if not 0 <= number < 2**32:
            raise ValueError(f"a keysym must have 32 bits, not {number}")
        return number
    known = KEYSYMS.get(key)
    if known is not None:
        return known
    if len(key) == 1:
        return _of_character(key)
    known = _ANY_CASE.get(key.lower())
    if known is None:
        raise ValueError(
            f"unknown key {key!r}: expected a character or a name of "
            "rlwire.codecs.rfb.keysyms.KEYSYMS"
        )
    return known


def _of_character(character: str) -> int:
    code = ord(character)
    if 0x20 <= code <= 0x7E or 0xA0 <= code <= 0xFF:
        return code
    named = {"\b": "BackSpace", "\t": "Tab", "\n": "Return", "\r": "Return", "\x1b": "Escape"}
    if character in named:
        return KEYSYMS[named[character]]
    if code < 0xA0:
        raise ValueError(f"no key types {character!r}")
    return _UNICODE + code


def name_of(keysym: int) -> str:
    """Return a number's X11 name, else the character that it types, else the number in hex."""
    name = _NAMES.get(keysym)
    if name is not None:
        return name
    code = keysym - _UNICODE
    if 0xA0 <= code < 0x11_0000 and chr(code).isprintable():
        return chr(code)
    return f"0x{keysym:x}"
