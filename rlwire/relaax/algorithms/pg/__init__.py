"""`pg`: a small actor-critic to read, copy and change; needs PyTorch (the extra ``torch``).

Agents act and compute gradients (`agent.py`). The parameter server stores the weights and applies
the gradients (`parameter_server.py`). It is for vector states and small networks on a CPU.
"""
