"""RFB's two sides: who may say what when.

`client` is a viewer's, which tells `events`, `server` a desktop's; `clipboard` is a part
of both. Not here: bytes (`rlwire.codecs.rfb`), sockets.
"""
