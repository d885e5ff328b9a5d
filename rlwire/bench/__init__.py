"""`rlwire bench`: what a step costs on this machine, per protocol and payload.

`payloads` records real observations, `providers/` has one file a protocol, `floor` is the raw
socket echo they are held against, `runner` measures the two in alternating blocks, `report` and
`plot` show what came out, `command` is the command line.

Not here: comparisons with other packages (``benchmarks/`` in the source tree).
"""
