"""RFB, the protocol of VNC: messages, pixels, keys, passwords.

`handshake` and `messages` are what both sides say, `keysyms` the keys' numbers, `auth` the answer
to a challenge, `pixels` how pixels are written.

Source: RFC 6143 and what TigerVNC speaks beyond it. Not here: who may say what when
(`rlwire.sessions.rfb`).
"""
