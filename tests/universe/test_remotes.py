"""What texts and URLs name remotes."""

import pytest

from rlwire.universe.remotes import Remote, remotes_of
from rlwire.urls import parse_url
from tests.raising import raised


def places(given):
    return [
        tuple(None if where is None else str(where) for where in (each.pixels, each.rewarder))
        for each in remotes_of(given)
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("vnc://h:5900+15900", [("h:5900", "h:15900")]),
        (
            "vnc://h:5900+15900,h2:5901+15901?password=x",
            [("h:5900", "h:15900"), ("h2:5901", "h2:15901")],
        ),
        (
            "vnc://h:5900+15900,vnc://h2:5901+15901",
            [("h:5900", "h:15900"), ("h2:5901", "h2:15901")],
        ),
        ("vnc://h:5900,h2:5901", [("h:5900", None), ("h2:5901", None)]),
        ("vnc://h+15900,h:+15901", [(None, "h:15900"), (None, "h:15901")]),
        ("universe://h:5900+15900/gym-core.Pong-v3", [("h:5900", "h:15900")]),
        ("vnc://[::1]:5900+15900", [("[::1]:5900", "[::1]:15900")]),
        (parse_url("universe://h:5900"), [("h:5900", None)]),
        (["vnc://a:1+2", "universe://b:3+4"], [("a:1", "a:2"), ("b:3", "b:4")]),
        (Remote("unix:/tmp/x", "h:1"), [("unix:/tmp/x", "h:1")]),
    ],
)
def test_remotes_are_parsed(given, expected):
    assert places(given) == expected


def test_passwords_environments_and_labels():
    first, second = remotes_of("universe://h:5900+15900/a.B-v0,i:5900+15900?password=secret")
    assert (first.auth, second.auth) == ("secret", "secret")
    assert (first.env_id, second.env_id) == ("a.B-v0", None)
    assert (first.label, second.label) == ("0:h:5900+h:15900", "1:i:5900+i:15900")
    assert "secret" not in repr(first)
    assert remotes_of("vnc://h:5900")[0].auth == "openai"
    named = remotes_of([Remote("h:1", label="mine"), Remote("h:2")])
    assert [each.label for each in named] == ["mine", "1:h:2"]
    assert remotes_of("universe+tls://h:+15900")[0].tls


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("http://h:80", "names no remotes"), ("h:5900+15900", "names no remotes"),
        ("vnc://h", "no port"), ("vnc://h:x+15900", "x"),
        ("vnc://h:5900+15900,h2:5901", "rewarder"), ("vnc://h:5900+15900,h2:+15901", "pixels"),
        ([], "no remotes"), (["rlx://h:1"], "names no remotes"),
        (parse_url("rlx://h:1"), "universe"),
    ],
)  # fmt: skip
def test_invalid_remotes_are_rejected(given, words):
    with pytest.raises(ValueError, match=words):
        remotes_of(given)


def test_a_remote_has_something():
    assert "neither" in str(raised(ValueError, Remote))
    assert "host:port" in str(raised(ValueError, Remote, rewarder="unix:/tmp/x"))
