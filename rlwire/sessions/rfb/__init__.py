"""RFB's two sides: who may say what when.

`client` is a viewer's, `server` a desktop's. Not here: bytes (`rlwire.codecs.rfb`), sockets.
"""
