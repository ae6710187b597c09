"""Builds the compiled core, and never fails for want of a compiler.

Every module of the core is optional: without gcc the package installs all the
same and runs the same source uncompiled. A release build must not fall back
unseen, so ``PENSTOCK_REQUIRE_COMPILED=1`` makes each of them required.

gRPC over nghttp2 is an extension of its own, built where libnghttp2 is found; else
the server uses grpcio.
"""

import os
import re
import shlex
import subprocess
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).parent
NGHTTP2 = "penstock.wires.grpc.h2._nghttp2"
REQUIRED = os.environ.get("PENSTOCK_REQUIRE_COMPILED") == "1"


def core_modules() -> list[str]:
    """The names in penstock/_mode.py, read as text: importing it would need a build."""
    text = (HERE / "src/penstock/_mode.py").read_text()
    blocks = re.findall(r"^(?:CORE|SERVICE|REPLAY) = \((.*?)\)", text, re.S | re.M)
    assert len(blocks) == 3, "src/penstock/_mode.py lost its CORE, SERVICE or REPLAY tuple"
    return re.findall(r'"([\w.]+)"', "".join(blocks))


def extension(name: str) -> Extension:
    headers = ["src/penstock/stores", "src/penstock/replay/reading"]
    stem = Path("src/penstock", *name.split("."))
    source = stem.with_suffix(".pyx")
    if not (HERE / source).exists():
        source = stem.with_suffix(".py")
    return Extension(
        f"penstock.{name}",
        [str(source)],
        depends=[
            str(path.relative_to(HERE))
            for folder in headers
            for path in sorted((HERE / folder).glob("*.h"))
        ],
        extra_compile_args=["-O3", "-g0", "-Wno-unused-function"],
        include_dirs=headers,
        libraries=["pthread"],
    )


def output(command: list[str], given: str = "") -> str | None:
    """What a program says, or None where there is no such program, or it fails."""
    try:
        return subprocess.run(
            command, input=given, capture_output=True, text=True, check=True, timeout=60
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def nghttp2() -> list[Extension]:
    """The extension over libnghttp2, if that is here: fetched by tools/nghttp2.sh, or installed."""
    folder = "src/penstock/wires/grpc/h2"
    found = Extension(
        NGHTTP2,
        [f"{folder}/_nghttp2.pyx"],
        depends=[str(path.relative_to(HERE)) for path in sorted((HERE / folder).glob("*.h"))],
        extra_compile_args=["-O3", "-g0", "-Wno-unused-function"],
        include_dirs=[folder],
        libraries=["nghttp2"],
    )
    fetched = HERE / ".make/nghttp2/usr"
    if (fetched / "include/nghttp2/nghttp2.h").exists():
        folders = [str(path.parent) for path in fetched.glob("lib/**/libnghttp2.so")]
        found.include_dirs.append(str(fetched / "include"))
        found.library_dirs = folders
        found.runtime_library_dirs = folders
        return [found]
    flags = output(["pkg-config", "--cflags-only-I", "--libs-only-L", "libnghttp2"])
    for flag in shlex.split(flags or ""):
        (found.include_dirs if flag.startswith("-I") else found.library_dirs).append(flag[2:])
    compiler = [*shlex.split(os.environ.get("CC", "cc")), *(f"-I{d}" for d in found.include_dirs)]
    header = output([*compiler, "-E", "-xc", "-"], "#include <nghttp2/nghttp2.h>\n")
    return [found] if header is not None else []


class Build(build_ext):
    """Goes on without a module that cannot be built.

    ``optional`` says the same, but covers only a compiler that complains, not one
    that does not exist.
    """

    def initialize_options(self) -> None:
        super().initialize_options()
        self.parallel = os.cpu_count()

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:
            if REQUIRED:
                raise
            instead = "grpcio serves gRPC" if ext.name == NGHTTP2 else "its source will be used"
            self.warn(f"{ext.name} was not compiled, {instead}: {error}")


DIRECTIVES = {
    # Types come from the .pxd files; annotations speak to mypy and to people.
    "annotation_typing": False,
    "always_allow_keywords": True,
    "binding": False,
    "boundscheck": False,
    "cdivision": True,
    "initializedcheck": False,
    "wraparound": False,
}

modules = cythonize(
    [*(extension(name) for name in core_modules()), *nghttp2()],
    build_dir="build/cython",
    include_path=["src"],
    nthreads=os.cpu_count() or 1,
    language_level=3,
    compiler_directives=DIRECTIVES,
)
for module in modules:
    module.optional = not REQUIRED  # cythonize makes new ones and forgets it
setup(cmdclass={"build_ext": Build}, ext_modules=modules)
