"""What tests need: exams for servers, and networks inside one process.

An exam is a module a protocol, with classes of tests to inherit. They work with pytest and import
nothing of it; they speak to the server through plain sockets, so the server may be written in any
language. `rlwire.testing.lossy` is a network of datagrams that go astray.
"""
