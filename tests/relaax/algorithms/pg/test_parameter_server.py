"""Steps, and what a checkpoint brings back."""

import numpy as np
import pytest

from rlwire.relaax.algorithm import load_algorithm
from rlwire.relaax.parameter_server import ParameterServerError
from rlwire.relaax.server import open_parameter_server

pytestmark = [pytest.mark.training, pytest.mark.timeout(600)]  # each process imports PyTorch

torch = pytest.importorskip("torch")


def algorithm(**more):
    config = {"input": {"shape": [2]}, "output": {"action_size": 3}, "seed": 1, **more}
    return load_algorithm("pg", config)


def weights(handle):
    return handle.session.op_get_weights_signed()[0]


def gradient(handle, value):
    return {name: np.full_like(each, value) for name, each in weights(handle).items()}


def submit(handle, value):
    return handle.session.op_submit_gradients(gradients=gradient(handle, value), step_inc=10)


def test_parameter_server_applies_each_gradient_as_one_step():
    handle = open_parameter_server(algorithm())
    before = weights(handle)
    kept = {name: each.copy() for name, each in before.items()}
    assert submit(handle, 1.0) == 10
    assert submit(handle, 1.0) == 20
    for name, each in weights(handle).items():
        np.testing.assert_allclose(each, kept[name] - 2 * 2e-3, rtol=1e-3, atol=1e-6)
        np.testing.assert_array_equal(before[name], kept[name])  # agents may hold them
    handle.close()


def test_checkpoint_restores_weights_and_optimizer_state(tmp_path):
    straight = open_parameter_server(algorithm())
    first = open_parameter_server(algorithm(), checkpoints=tmp_path)
    for handle in (straight, first):
        submit(handle, 1.0)
    first.close()
    assert [file.suffix for file in tmp_path.iterdir()] == [".msgpack"]
    second = open_parameter_server(algorithm(seed=7), checkpoints=tmp_path)
    assert second.n_step() == 10
    for handle in (straight, second):  # the optimizer remembers as well
        assert submit(handle, 0.1) == 20
    for name, each in weights(second).items():
        np.testing.assert_array_equal(each, weights(straight)[name])
    second.close()
    straight.close()
    with pytest.raises((ParameterServerError, RuntimeError), match="size mismatch"):
        open_parameter_server(algorithm(hidden_sizes=[3]), checkpoints=tmp_path)
