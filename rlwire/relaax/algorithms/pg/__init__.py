"""`pg`, a small actor-critic to read, copy and change; needs PyTorch (the extra ``torch``).

Agents play and compute gradients (`agent.py`), the parameter server has the weights and takes the
steps (`parameter_server.py`). It learns vectors by small networks on a CPU.
"""
