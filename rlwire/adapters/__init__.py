"""What users hold: environments, agents and servers with the interfaces they know.

One package or module for each interface; nothing is imported until it is asked for, because some
need optional dependencies.
"""
