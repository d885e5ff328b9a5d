"""The compiled modules; everything else about the package is in pyproject.toml.

Switches (environment variables):
    RLWIRE_DEBUG=1     bounds checks on, optimisation off, live blocks counted
    RLWIRE_SANITIZE=1  AddressSanitizer and UndefinedBehaviorSanitizer
    RLWIRE_OPTIMIZE=N  0, 1, 2 or 3 for all modules; by default as `optimize` says
    RLWIRE_C=FOLDER    the C that an earlier build of these very sources left (build/cython, or
                       build/cython-debug for RLWIRE_DEBUG=1), taken as it is
    RLWIRE_PLAIN=1     Python modules that are otherwise compiled as they stand are left as they are
    RLWIRE_FUZZ=1      both, and what libFuzzer needs; Clang only, see tests/fuzz/run
    CFLAGS=-g          debug symbols, which are left out otherwise
"""

import json
import os
import platform
import re
from pathlib import Path

import Cython
import numpy
from Cython.Build import cythonize
from Cython.Build.Dependencies import DependencyTree
from Cython.Compiler import Options
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.egg_info import egg_info

DEBUG = os.environ.get("RLWIRE_DEBUG") == "1"
SANITIZE = os.environ.get("RLWIRE_SANITIZE") == "1"
LEVEL = "0" if DEBUG else os.environ.get("RLWIRE_OPTIMIZE")
C_FOLDER = os.environ.get("RLWIRE_C", "")
FUZZ = os.environ.get("RLWIRE_FUZZ") == "1"
PLAIN = os.environ.get("RLWIRE_PLAIN") == "1"

DIRECTIVES = {
    "language_level": 3,
    "cdivision": True,
    "auto_pickle": False,
    "autotestdict": False,
    "embedsignature": True,
    "embedsignature.format": "python",
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    # Caches of keys and dtypes, the free lists and the arenas rely on the lock; each module's
    # variables are one set a process. See docs/decisions.md, "Interpreters".
    "freethreading_compatible": False,
    "subinterpreters_compatible": "no",
    "warn.unused": True,
    "warn.maybe_uninitialized": True,
}

MODULES = [
    "rlwire.buffers",
    "rlwire.codecs._arrays",
    "rlwire.codecs._glue",
    "rlwire.codecs._json_arrays",
    "rlwire.codecs._output",
    "rlwire.codecs.dm_env_rpc.messages",
    "rlwire.codecs.dm_env_rpc.steps",
    "rlwire.codecs.dm_env_rpc.tensors",
    "rlwire.codecs.dm_env_rpc.wire",
    "rlwire.codecs.http2.frames",
    "rlwire.codecs.msgpack.decoder",
    "rlwire.codecs.msgpack.encoder",
    "rlwire.codecs.msgpack.unpacker",
    "rlwire.codecs.perlert.datagrams",
    "rlwire.codecs.perlert.text",
    "rlwire.codecs.rfb.decoder",
    "rlwire.codecs.rfb.encoder",
    "rlwire.codecs.rlx.decoder",
    "rlwire.codecs.rlx.encoder",
    "rlwire.codecs.websocket.frames",
    "rlwire.sessions.http2.core",
    "rlwire.sessions.rlx.state_machine",
    "rlwire.streams",
    "rlwire.transports.shm_calls",
    "rlwire.transports.socket_calls",
    "rlwire.transports.udp_calls",
]

LAYER = "rlwire.sessions.layer"  # always compiled: others of MODULES inherit its class

# Python modules that are compiled as they stand, because every step passes through them. What is
# typed of them is in a .pxd beside the .py; not compiled they do the same, slower.
PYTHON_MODULES: list[str] = [
    "rlwire.dm_env_rpc.grpc_handler",
    "rlwire.dm_env_rpc.served_world",
    "rlwire.rlx.hosting",
    "rlwire.codecs._json",
    "rlwire.codecs.rewarder.messages",
    LAYER,
    "rlwire.sessions.dm_env_rpc.session",
    "rlwire.sessions.http2.session",
    "rlwire.sessions.openpi",
    "rlwire.sessions.rewarder.rules",
    "rlwire.sessions.stack",
    "rlwire.sessions.websocket.session",
    "rlwire.transports.handler_asyncio",
    "rlwire.transports.connection_asyncio",
    "rlwire.transports.deferred",
    "rlwire.transports.waiter_asyncio",
]
PYTHON_DIRECTIVES = {
    "annotation_typing": False,  # they are for readers and mypy: an int may be any number
    "boundscheck": True,
    "cdivision": False,
    "wraparound": True,
    "warn.unused": False,  # the linter's, which knows more of Python
    "warn.maybe_uninitialized": False,
}

# Modules without loops over bytes or numbers: -O2 is enough, and -O1 for the other PYTHON_MODULES.
# By callgrind's count over tests/codecs/growth these run at most 1 % more instructions than at -O3,
# 2.3 % in the worst case; the others would run up to 90 % more at -O2. All at -O3 take 112 s of CPU
# time to compile, at -O2 91 s, at -O1 61 s, and so 94 s.
WITHOUT_LOOPS = {
    "rlwire.buffers",
    "rlwire.codecs._json",
    "rlwire.codecs.http2.frames",
    "rlwire.codecs.msgpack.unpacker",
    "rlwire.codecs.rewarder.messages",
    "rlwire.codecs.rfb.encoder",
    "rlwire.sessions.http2.core",
    "rlwire.sessions.rlx.state_machine",
    "rlwire.streams",
    "rlwire.transports.shm_calls",
    "rlwire.transports.socket_calls",
    "rlwire.transports.udp_calls",
}

# Those that read or write numbers as text.
WITH_NUMBERS = {
    "rlwire.codecs._json_arrays",
    "rlwire.codecs.perlert.datagrams",
    "rlwire.codecs.perlert.text",
}
HEADERS = "rlwire/include"
NUMBERS = f"{HEADERS}/rlwire/numbers.cpp"

link_args = []
c_standard, cxx_standard = ["-std=c11"], ["-std=c++17"]
compile_args = ["-Wall", "-Wno-unused-function"]
if DEBUG:
    compile_args += ["-g", "-UNDEBUG"]
elif "-g" not in os.environ.get("CFLAGS", "").split():
    compile_args.append("-g0")  # Python's own flags may have -g
if SANITIZE:
    compile_args += ["-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-g"]
    link_args += ["-fsanitize=address,undefined"]
if FUZZ:  # linked to no runtime: it is preloaded
    compile_args += ["-gline-tables-only", "-fno-omit-frame-pointer"]
    compile_args += ["-fsanitize=fuzzer-no-link,address,undefined"]
    compile_args += ["-fsanitize-trap=undefined", "-Wno-unneeded-internal-declaration"]

macros = [("NPY_NO_DEPRECATED_API", "NPY_1_23_API_VERSION")]
if DEBUG:
    macros.append(("RLWIRE_DEBUG", "1"))


# Where a list comprehension has no memory to grow, Cython 3.3.1 gives its item back twice.
ONCE_TOO_OFTEN = "int result = PyList_Append(list, x);\n    Py_DECREF(x);"
ONCE = "int result = PyList_Append(list, x);\n    if (result == 0) Py_DECREF(x);"


def optimize(name):
    """Return the option for the compiler: how far to optimise a module."""
    return f"-O{LEVEL or (2 if name in WITHOUT_LOOPS else 1 if name in PYTHON_MODULES else 3)}"


def headers_of(path, seen=None):
    """Return those of our headers that a file of C includes, and what they include."""
    seen = set() if seen is None else seen
    folder = os.path.dirname(path)
    for name in re.findall(
        r'^\s*#\s*include\s+["<]([^">]+)[">]', Path(path).read_text("utf-8"), re.MULTILINE
    ):
        for header in (os.path.join(folder, name), os.path.join(HEADERS, name)):
            if header.startswith(HEADERS) and header not in seen and os.path.exists(header):
                seen.add(header)
                headers_of(header, seen)
    return seen


class BuildCython(build_ext):
    """Turns .pyx into C under build/, only when something is compiled: never for an sdist."""

    def build_extensions(self):
        """Compile all modules."""
        self.parallel = self.parallel or os.cpu_count()
        if C_FOLDER:
            for extension in self.extensions:
                extension.sources = [f"{C_FOLDER}/{extension.name.replace('.', '/')}.c"]
        else:
            self.make_c()
        # What was compiled with other switches is out of date.
        used = Path("build/flags")
        flags = repr([[each.name, each.extra_compile_args, macros] for each in self.extensions])
        if not used.exists() or used.read_text("utf-8") != flags:
            used.parent.mkdir(exist_ok=True)
            used.write_text(flags, "utf-8")
        for extension in self.extensions:
            extension.depends = [*sorted(headers_of(extension.sources[0])), str(used)]
        # One C++ file for all, with flags of its own; what it goes into is linked as C++.
        flags = [*cxx_standard, optimize(NUMBERS), *compile_args]
        numbers = self.compiler.compile([NUMBERS], output_dir=self.build_temp, extra_postargs=flags)
        for extension in self.extensions:
            if extension.name in WITH_NUMBERS:
                extension.extra_objects = numbers
                extension.depends.append(NUMBERS)
                extension.language = "c++"
        super().build_extensions()

    def make_c(self):
        """Put the C of each extension in place of its Cython."""
        Options.warning_errors = True
        # pip puts NumPy and Cython into a new folder each time: only our own files make C stale.
        DependencyTree.timestamp = lambda self, path: (
            0.0 if os.path.isabs(path) else os.path.getmtime(path)
        )
        folder = "build/cython-debug" if DEBUG else "build/cython"
        with_c: dict[str, list[str]] = {}
        for kind, directives in ((".pyx", DIRECTIVES), (".py", DIRECTIVES | PYTHON_DIRECTIVES)):
            extensions = [one for one in self.extensions if one.sources[0].endswith(kind)]
            generated = cythonize(
                extensions, build_dir=folder, compiler_directives=directives, nthreads=self.parallel
            )
            with_c.update({one.name: one.sources for one in generated})
        for extension in self.extensions:
            extension.sources = with_c[extension.name]
            for name in extension.sources:
                text = Path(name).read_text("utf-8")
                if ONCE_TOO_OFTEN in text:
                    Path(name).write_text(text.replace(ONCE_TOO_OFTEN, ONCE), "utf-8")


def component(name, version, licence, words, **more):
    """Return a component of a CycloneDX document."""
    known = {"version": version, "licenses": [{"license": {"id": licence}}], "description": words}
    return {"type": "library", "name": name, **known, **more}


class WithBill(egg_info):
    """Adds a software bill of materials, which wheels have in .dist-info/sboms (PEP 770)."""

    def run(self):
        """Write the metadata."""
        super().run()
        version = self.distribution.get_version()
        own = component(
            "rlwire",
            version,
            "Apache-2.0",
            "All sources are rlwire's own. Compiled modules load the system's C library; the "
            "compiler may link parts of its runtime and of its C++ library statically.",
            purl=f"pkg:pypi/rlwire@{version}",
        )
        others = [
            component("CPython", platform.python_version(), "Python-2.0", "Inlined from headers."),
            component("Cython", Cython.__version__, "Apache-2.0", "In the C that it generates."),
            component("NumPy", numpy.__version__, "BSD-3-Clause", "Inlined from headers."),
        ]
        bill = {"bomFormat": "CycloneDX", "specVersion": "1.6", "metadata": {"component": own}}
        folder = Path(self.egg_info, "sboms")
        folder.mkdir(exist_ok=True)
        text = json.dumps({**bill, "components": others}, indent=1)
        (folder / "rlwire.cdx.json").write_text(text, "utf-8")


if __name__ == "__main__":  # Cython's processes may import this file
    setup(
        cmdclass={"build_ext": BuildCython, "egg_info": WithBill},
        ext_modules=[
            Extension(
                name,
                [name.replace(".", "/") + (".py" if name in PYTHON_MODULES else ".pyx")],
                include_dirs=[HEADERS, numpy.get_include()],
                define_macros=macros,
                extra_compile_args=[*c_standard, optimize(name), *compile_args],
                extra_link_args=link_args,
            )
            for name in MODULES + ([LAYER] if PLAIN else PYTHON_MODULES)
        ],
    )
