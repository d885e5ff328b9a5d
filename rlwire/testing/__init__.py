"""Exams for servers that speak rlwire's protocols: classes of tests to inherit.

One module a protocol. The classes work with pytest and import nothing of it; they speak to the
server through plain sockets, so the server may be written in any language.
"""
