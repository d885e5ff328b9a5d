"""Empty stand-ins for the packages that LeRobot imports and these tests do not use.

They are its cameras, motors, data sets and vision: hundreds of megabytes.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec

HEAVY = """accelerate av cv2 datasets deepdiff diffusers einops imageio jsonlines matplotlib pandas
pyarrow pynput serial torchcodec torchvision wandb"""
NAMES = set(HEAVY.split())


class _Named(type):
    """The class of names that are in a stand-in: they may be base classes and have attributes."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Named(name, (), {"__init__": lambda self, *args, **kwargs: None})


class _StandIns:
    """A finder and loader, after all others."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in NAMES:
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        def find(name):
            if name.startswith("__"):
                raise AttributeError(name)
            return _Named(name, (), {"__init__": lambda self, *args, **kwargs: None})

        module.__getattr__ = find


def install():
    NAMES.intersection_update({name for name in NAMES if importlib.util.find_spec(name) is None})
    sys.meta_path.append(_StandIns())
