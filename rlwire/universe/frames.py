"""What an environment looks like: frames of its observations, or of `render`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np

from rlwire.environments.driver import Driven

Frame: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
"""Height x width x 3, uint8."""

Source: TypeAlias = Literal["observation", "render"]

_SIDE = 16_384  # pixels: no screen is larger


def is_picture(space: Any) -> bool:
    """Whether the observations of a space are pictures: uint8, grey, RGB or RGBA."""
    shape, dtype = getattr(space, "shape", None), getattr(space, "dtype", None)
    if shape is None or dtype is None or np.dtype(dtype) != np.uint8:
        return False
    plane = len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4))
    return plane and all(8 <= side <= _SIDE for side in shape[:2])


def as_frame(picture: Any) -> Frame:
    """Return a picture as a frame: grey on all three channels, without an alpha channel."""
    array = np.asarray(picture)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] not in (1, 3, 4):
        raise ValueError(
            f"a picture is height x width x 3 of uint8, not {array.shape} of {array.dtype}"
        )
    if not all(0 < side <= _SIDE for side in array.shape[:2]):
        raise ValueError(f"a picture of {array.shape} is no screen: a side has 1 to {_SIDE} pixels")
    if array.shape[2] == 1:
        array = np.repeat(array, 3, axis=2)
    return np.ascontiguousarray(array[:, :, :3])


def frames_of(
    driven: Driven, source: Source | None = None
) -> tuple[Callable[[Any], Frame], Source]:
    """Return what makes a frame of an observation, and where it takes that from."""
    space, environment = driven.observation_space, driven.environment
    picture = is_picture(space)
    renders = getattr(environment, "render_mode", None) == "rgb_array"
    if source is None:
        colour = picture and len(space.shape) == 3 and space.shape[2] > 1
        source = "observation" if picture and (colour or not renders) else "render"
    if source == "observation":
        if not picture:
            raise TypeError(
                f"{driven.name}: an observation is {space}, which is no picture; frames are "
                f"uint8, height x width x 3"
            )
        return as_frame, source
    if not renders:
        raise TypeError(
            f"{driven.name} looks like nothing: its observation, {space}, is no picture, and it "
            f'was not made with render_mode="rgb_array"'
        )
    return lambda observation: as_frame(environment.render()), source
