"""Builds the compiled core, and never fails for want of a compiler.

Every module of the core is optional: without gcc the package installs all the
same and runs the same source uncompiled. A release build must not fall back
unseen, so ``PENSTOCK_REQUIRE_COMPILED=1`` makes each of them required.
"""

import os
import re
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).parent
REQUIRED = os.environ.get("PENSTOCK_REQUIRE_COMPILED") == "1"


def core_modules() -> list[str]:
    """The names in penstock/_mode.py, read as text: importing it would need a build."""
    text = (HERE / "src/penstock/_mode.py").read_text()
    block = re.search(r"CORE = \((.*?)\)", text, re.S)
    assert block is not None, "src/penstock/_mode.py lost its CORE tuple"
    return re.findall(r'"([\w.]+)"', block.group(1))


def extension(name: str) -> Extension:
    stem = Path("src/penstock", *name.split("."))
    source = stem.with_suffix(".pyx")
    if not (HERE / source).exists():
        source = stem.with_suffix(".py")
    return Extension(
        f"penstock.{name}",
        [str(source)],
        extra_compile_args=["-O3", "-g0", "-Wno-unused-function"],
        include_dirs=["src/penstock/stores"],
        libraries=["pthread"],
    )


class Build(build_ext):
    """Goes on without a module that cannot be built.

    ``optional`` says the same, but covers only a compiler that complains, not one
    that does not exist.
    """

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:
            if REQUIRED:
                raise
            self.warn(f"{ext.name} was not compiled, its source will be used: {error}")


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
    [extension(name) for name in core_modules()],
    build_dir="build/cython",
    include_path=["src"],
    nthreads=os.cpu_count() or 1,
    language_level=3,
    compiler_directives=DIRECTIVES,
)
for module in modules:
    module.optional = not REQUIRED  # cythonize makes new ones and forgets it
setup(cmdclass={"build_ext": Build}, ext_modules=modules)
