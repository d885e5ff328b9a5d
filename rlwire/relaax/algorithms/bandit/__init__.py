"""`bandit`: the epsilon-greedy algorithm for bandits, with NumPy alone.

Most often it takes the action with the highest mean reward so far (Sutton and Barto, Reinforcement
Learning, 2.4).
"""
