"""A small actor-critic, which is there to be read, copied and changed.

Agents play and work out gradients (`agent.py`), the parameter server has the weights and makes the
steps (`parameter_server.py`), and what both know of the network is in `model.py`; `settings.py`
says what may be set, and how. It learns vectors by small networks on a CPU: for pixels, memory or
more, change the network, or take one of RLlib's algorithms. Needs PyTorch (the extra ``torch``).
"""
