"""RFB's two sides: who may say what when.

`client` is a viewer's, which tells `events`, `server` a desktop's.
"""
