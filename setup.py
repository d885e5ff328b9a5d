"""Builds the compiled modules. pyproject.toml has everything else about the package.

Environment variables:
    RLWIRE_DEBUG=1     check bounds, count live blocks, do not optimize
    RLWIRE_SANITIZE=1  build with AddressSanitizer and UndefinedBehaviorSanitizer
    RLWIRE_OPTIMIZE=N  0, 1, 2 or 3 for all modules; by default see `optimize`
    RLWIRE_C=FOLDER    compile the C of an earlier build of the same sources (build/cython, or
                       build/cython-debug for RLWIRE_DEBUG=1) without running Cython
    RLWIRE_PLAIN=1     do not compile PYTHON_MODULES
    RLWIRE_FUZZ=1      instrument for libFuzzer and the sanitizers; needs Clang, see tests/fuzz/run
    CFLAGS=-g          keep debug symbols
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
    # The interpreter's lock guards caches, free lists and arenas, and module variables are shared
    # by the process: docs/decisions.md, "Interpreters".
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
    "rlwire.codecs.perlert.datagrams",
    "rlwire.codecs.perlert.text",
    "rlwire.codecs.rewarder.texts",
    "rlwire.codecs.rfb.decoder",
    "rlwire.codecs.rfb.encoder",
    "rlwire.codecs.rllink.frames",
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

LAYER = "rlwire.sessions.layer"  # always compiled, because MODULES inherit its class

# Python modules on the path of every step. Cython compiles the .py, with the types of a .pxd beside
# it. Uncompiled they behave the same, but slower.
PYTHON_MODULES: list[str] = [
    "rlwire.dm_env_rpc.shared_connections",
    "rlwire.dm_env_rpc.spaces",
    "rlwire.dm_env_rpc.step_converter",
    "rlwire.rlx.hosting",
    "rlwire.codecs._json",
    "rlwire.codecs.lerobot",
    "rlwire.codecs.rewarder.messages",
    "rlwire.codecs.rllink.episodes",
    "rlwire.codecs.rllink.messages",
    LAYER,
    "rlwire.sessions.dm_env_rpc.session",
    "rlwire.sessions.grpc.client",
    "rlwire.sessions.http2.session",
    "rlwire.sessions.openpi",
    "rlwire.sessions.perlert.client",
    "rlwire.sessions.perlert.server",
    "rlwire.sessions.rewarder.client",
    "rlwire.sessions.rewarder.rules",
    "rlwire.sessions.rewarder.server",
    "rlwire.sessions.rewarder.steps",
    "rlwire.sessions.rllink",
    "rlwire.sessions.stack",
    "rlwire.sessions.websocket.session",
    "rlwire.transports.connection_asyncio",
    "rlwire.transports.deferred",
    "rlwire.transports.waiter_asyncio",
    "rlwire.universe.rewarder._loan",
    "rlwire.universe.rewarder._reader",
]
PYTHON_DIRECTIVES = {
    "annotation_typing": False,  # an annotated int may exceed a C integer
    "boundscheck": True,
    "cdivision": False,
    "wraparound": True,
    "warn.unused": False,  # ruff checks this
    "warn.maybe_uninitialized": False,
}

# Modules without loops over bytes or numbers compile at -O2, the other PYTHON_MODULES at -O1 and
# the rest at -O3. By callgrind's count over tests/codecs/growth, -O2 costs these at most 1 % more
# instructions, 2.3 % in the worst case, and the rest up to 90 %. The build takes 94 s of CPU time,
# at -O3 alone 112 s.
WITHOUT_LOOPS = {
    "rlwire.buffers",
    "rlwire.codecs._json",
    "rlwire.codecs.http2.frames",
    "rlwire.codecs.lerobot",
    "rlwire.codecs.rewarder.messages",
    "rlwire.codecs.rfb.encoder",
    "rlwire.codecs.rllink.frames",
    "rlwire.sessions.http2.core",
    "rlwire.sessions.rlx.state_machine",
    "rlwire.streams",
    "rlwire.transports.shm_calls",
    "rlwire.transports.socket_calls",
    "rlwire.transports.udp_calls",
}

# Modules that link numbers.cpp.
WITH_NUMBERS = {
    "rlwire.codecs._json_arrays",
    "rlwire.codecs.perlert.datagrams",
    "rlwire.codecs.perlert.text",
    "rlwire.codecs.rewarder.texts",
}
HEADERS = "rlwire/include"
NUMBERS = f"{HEADERS}/rlwire/numbers.cpp"

link_args = []
c_standard, cxx_standard = ["-std=c11"], ["-std=c++17"]
# Calls into Python without a stub between: a step over dm_env_rpc takes 5 to 8 % less.
compile_args = ["-fno-plt", "-Wall", "-Wno-unused-function"]
if DEBUG:
    compile_args += ["-g", "-UNDEBUG"]
elif "-g" not in os.environ.get("CFLAGS", "").split():
    compile_args.append("-g0")  # Python's own flags may have -g
if SANITIZE:
    compile_args += ["-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-g"]
    link_args += ["-fsanitize=address,undefined"]
if FUZZ:  # the runtime is preloaded, not linked
    compile_args += ["-gline-tables-only", "-fno-omit-frame-pointer"]
    compile_args += ["-fsanitize=fuzzer-no-link,address,undefined"]
    compile_args += ["-fsanitize-trap=undefined", "-Wno-unneeded-internal-declaration"]

macros = [("NPY_NO_DEPRECATED_API", "NPY_1_23_API_VERSION")]
if DEBUG:
    macros.append(("RLWIRE_DEBUG", "1"))


# If a list comprehension cannot grow for lack of memory, Cython 3.3.1 releases its item twice.
ONCE_TOO_OFTEN = "int result = PyList_Append(list, x);\n    Py_DECREF(x);"
ONCE = "int result = PyList_Append(list, x);\n    if (result == 0) Py_DECREF(x);"


def optimize(name):
    """Return the compiler's optimization option for a module."""
    return f"-O{LEVEL or (2 if name in WITHOUT_LOOPS else 1 if name in PYTHON_MODULES else 3)}"


def headers_of(path, seen=None):
    """Return the headers in rlwire/include that a C file includes, directly or not."""
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
    """Runs Cython in build_ext only, so that an sdist needs none."""

    def build_extensions(self):
        """Compile all modules."""
        self.parallel = self.parallel or os.cpu_count()
        if C_FOLDER:
            for extension in self.extensions:
                extension.sources = [f"{C_FOLDER}/{extension.name.replace('.', '/')}.c"]
        else:
            self.make_c()
        # Other flags make object files out of date.
        used = Path("build/flags")
        flags = repr([[each.name, each.extra_compile_args, macros] for each in self.extensions])
        if not used.exists() or used.read_text("utf-8") != flags:
            used.parent.mkdir(exist_ok=True)
            used.write_text(flags, "utf-8")
        for extension in self.extensions:
            extension.depends = [*sorted(headers_of(extension.sources[0])), str(used)]
        # Compile numbers.cpp once, as C++, for the modules that link it.
        flags = [*cxx_standard, optimize(NUMBERS), *compile_args]
        numbers = self.compiler.compile([NUMBERS], output_dir=self.build_temp, extra_postargs=flags)
        for extension in self.extensions:
            if extension.name in WITH_NUMBERS:
                extension.extra_objects = numbers
                extension.depends.append(NUMBERS)
                extension.language = "c++"
        super().build_extensions()

    def make_c(self):
        """Run Cython, and make the C files the sources of the extensions."""
        Options.warning_errors = True
        # pip installs NumPy and Cython into a new folder for each build. Only rlwire's own files
        # make C out of date.
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
    """Adds a software bill of materials to .dist-info/sboms (PEP 770)."""

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
