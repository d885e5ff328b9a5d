"""Builds outside.pyx against the installed rlwire: python build_outside.py build_ext --inplace."""

from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

import rlwire

INCLUDE = Path(rlwire.get_include())

setup(
    name="outside",
    py_modules=[],
    ext_modules=cythonize(
        [
            Extension(
                "outside",
                ["outside.pyx"],
                include_dirs=[str(INCLUDE), numpy.get_include()],
                define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_23_API_VERSION")],
            )
        ],
        # Where rlwire's .pxd files are. A normal installation needs no such line: Cython looks
        # along sys.path, on which an editable one does not stand.
        include_path=[str(INCLUDE.parents[1])],
    ),
)
