"""Compiles and loads ``floor.pyx``; the result stays in ``out/``."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.report import OUT

SOURCE = Path(__file__).with_name("floor.pyx")
BUILT = OUT / f"floor{importlib.machinery.EXTENSION_SUFFIXES[0]}"


def build() -> None:
    """In a process of its own, since a build says much and leaves much imported."""
    if BUILT.exists() and BUILT.stat().st_mtime >= SOURCE.stat().st_mtime:
        return
    OUT.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.floors"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"floor.pyx did not compile:\n{done.stdout}{done.stderr}")


def load() -> Any:
    """A ``Floor()`` of the compiled module."""
    build()
    spec = importlib.util.spec_from_file_location("floor", BUILT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Floor()


def _compile() -> None:
    from Cython.Build import cythonize
    from setuptools import Extension, setup

    flags = ["-O3", "-g0"]
    module = Extension("floor", [str(SOURCE.relative_to(Path.cwd()))], extra_compile_args=flags)
    scratch = str(OUT / "build")
    setup(
        name="floor",
        packages=[],
        py_modules=[],
        ext_modules=cythonize([module], build_dir=scratch, quiet=True),
        script_args=["-q", "build_ext", "--build-lib", str(OUT), "--build-temp", scratch],
    )


if __name__ == "__main__":
    _compile()
