"""`bandit` learns which of a few actions pays best, without states, with NumPy alone.

It is epsilon-greedy (Sutton and Barto, Reinforcement Learning, 2.4): most often it takes the action
with the highest mean reward so far.
"""
