"""PERLERT in slow Python, written from draft-perlert-wg-00 alone: the codec's oracle.

Messages are tuples: the kind, then the fields in the order of `rlwire.codecs.perlert`'s classes.
Where the draft leaves a choice, docs/protocols/perlert.md says which one is taken; here are the
same ones. Numbers are Python's own: float(), repr(), int().
"""

import re

INTEGER_MOST = 2**63 - 1
FLOAT = re.compile(
    r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|infinity|nan)", re.IGNORECASE | re.ASCII
)
WORDS = {"registered", "message", "start", "obs"}  # slots of these names would be ambiguous


class Wrong(Exception):
    """Not a message."""


def _must(condition):
    if not condition:
        raise Wrong


def _without(text, refused):
    _must(not set(text) & set(refused))
    return text


def _name(text):
    """SERVER_INSTANCE_NAME and AGENT_KEY: not empty, no separator."""
    _must(text != "")
    return _without(text, ":;,=")


def _integer(text, least=0, most=INTEGER_MOST):
    _must(re.fullmatch(r"[0-9]+", text) is not None)
    value = int(text)
    _must(least <= value <= most)
    return value


def _bool(text):
    _must(text in ("true", "false"))
    return text == "true"


def _float_or_text(text):
    return float(text) if FLOAT.fullmatch(text) else text


def _after(text, word):
    _must(text.startswith(word))
    return text[len(word) :]


def _header(datagram):
    try:
        text = datagram.decode("utf-8")
    except UnicodeDecodeError:
        raise Wrong from None
    header, semicolon, body = text.partition(";")
    _must(semicolon == ";")
    parts = header.split(":")
    _must(len(parts) in (2, 4))
    _name(parts[0])
    return parts, body


def decode_client(datagram):
    """Section 3.2."""
    parts, body = _header(datagram)
    _must(len(parts) == 2)
    head = (parts[0], _integer(parts[1]))
    body = body.removesuffix(";")
    if body == "lobby":
        return ("LobbyRequest", *head)
    word, equals, rest = body.partition("=")
    _must(equals == "=")
    if word == "register":
        key, tag = _two(rest)
        return ("Register", *head, _name(key), _without(tag, ";,="))
    if word == "ready":
        key, ready = _two(rest)
        return ("Ready", *head, _name(key), _bool(ready))
    _must(word == "action")
    return ("Action", *head, _without(rest, ":;="))


def _two(text):
    parts = text.split(",")
    _must(len(parts) == 2)
    return parts


def decode_server(datagram):
    """Section 3.3."""
    parts, body = _header(datagram)
    head = (parts[0], _integer(parts[1]))
    if len(parts) == 4:
        return ("RolloutStep", *head, *map(_integer, parts[2:]), *_step(body.removesuffix(";")))
    word, equals, rest = body.partition("=")
    _must(equals == "=")
    if word == "message":
        return ("LobbyMessage", *head, rest)
    if word == "registered":
        return ("Registered", *head, _name(rest.removesuffix(";")))
    if word == "start":
        return ("Start", *head, _integer(_after(rest.removesuffix(";"), "port:"), 1, 65535))
    _must(word != "obs")
    slots = body.split(";")
    if slots[-1] == "" and len(slots) > 1:
        slots.pop()  # the trailing semicolon, which MAY be omitted
    return ("LobbyInformation", *head, tuple(map(_slot, slots)))


def _slot(text):
    key, equals, rest = text.partition("=")
    fields = rest.split(",")
    _must(equals == "=" and len(fields) == 4)
    status, kind, tag, ready = fields
    _must(status in ("open", "close") and ready in ("ready", "not_ready"))
    tail = (_without(kind, ":="), _without(tag, "="))
    return (_name(key), status == "open", *tail, ready == "ready")


def _step(body):
    fields = body.split(";")
    _must(len(fields) in (3, 4))
    observation = _without(_after(fields[0], "obs="), "=")
    reward = _float_or_text(_without(_after(fields[1], "reward="), "="))
    done = _bool(_after(fields[2], "done="))
    extra = _without(_after(fields[3], "extra="), "=") if len(fields) == 4 else None
    return observation, reward, done, extra


def short(value):
    """A float as Python's repr() has it, without the ".0" of whole numbers."""
    text = repr(value)
    return text[:-2] if text.endswith(".0") else text


def rounded(value, decimals):
    """A float to so many decimals, zeros at the end dropped."""
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def encode(message, decimals=None):
    """A message, which must be right, as a datagram."""
    kind, name, number, *fields = message
    head = f"{name}:{number}"
    if kind == "LobbyRequest":
        text = f"{head};lobby"
    elif kind == "Register":
        text = f"{head};register={fields[0]},{fields[1]}"
    elif kind == "Ready":
        text = f"{head};ready={fields[0]},{_particle(fields[1])}"
    elif kind == "Action":
        text = f"{head};action={fields[0]}"
    elif kind == "LobbyInformation":
        text = f"{head};" + ";".join(
            f"{key}={'open' if is_open else 'close'},{kind},{tag},"
            f"{'ready' if ready else 'not_ready'}"
            for key, is_open, kind, tag, ready in fields[0]
        )
    elif kind == "Registered":
        text = f"{head};registered={fields[0]}"
    elif kind == "LobbyMessage":
        text = f"{head};message={fields[0]}"
    elif kind == "Start":
        text = f"{head};start=port:{fields[0]}"
    else:
        timestamp, step, observation, reward, done, extra = fields
        if isinstance(reward, float):
            reward = short(reward) if decimals is None else rounded(reward, decimals)
        text = f"{head}:{timestamp}:{step};obs={observation};reward={reward};done={_particle(done)}"
        if extra is not None:
            text += f";extra={extra}"
    return text.encode("utf-8")


def _particle(value):
    return "true" if value else "false"
