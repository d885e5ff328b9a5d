"""`bandit`: learns which of a few actions pays best, where there is no state; NumPy is enough.

The gradient bandit of Sutton and Barto (Reinforcement Learning, 2.8): each action has a preference,
is taken as often as their softmax says, and a reward above the mean makes what was done more
likely. To be read and copied: ``agent.py`` plays, ``parameter_server.py`` learns.
"""
