"""The node's C++ module, compiled for the installed PyTorch when it is first wanted.

The compiler runs in the background, for about half a minute, and its result is kept in the user's
cache. Until it is there, and where there is no compiler, backwards run by Python.
"""

import atexit
import contextlib
import hashlib
import importlib.util
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading

import torch

from retrograd.backend import messages

NAME = "retrograd_direct_node"
_HERE = pathlib.Path(__file__).parent
_lock = threading.Lock()
_state = {"module": None, "thread": None, "compiler": None}


def cache_folder():
    """Where compiled modules lie, beside the kernels'."""
    home = os.environ.get("XDG_CACHE_HOME")
    base = pathlib.Path(home) if home and os.path.isabs(home) else pathlib.Path.home() / ".cache"
    return base / "retrograd" / "node"


def _command(target):
    pytorch = pathlib.Path(torch.__file__).parent
    include, library = pytorch / "include", pytorch / "lib"
    includes = [include, include / "torch/csrc/api/include", sysconfig.get_paths()["include"]]
    return [
        *shlex.split(os.environ.get("CXX", "c++")), "-std=c++17", "-O2", "-shared", "-fPIC",
        "-fvisibility=hidden", f"-DTORCH_EXTENSION_NAME={NAME}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        *(f"-isystem{path}" for path in includes), str(_HERE / "module.cc"), "-o", str(target),
        f"-L{library}", f"-Wl,-rpath,{library}", "-ltorch_python", "-ltorch_cpu", "-lc10",
    ]  # fmt: skip


def _key():
    """A text that differs between sources, commands, PyTorch's and Python's versions."""
    digest = hashlib.sha256(f"{torch.__version__} {sys.version} {_command('')}".encode())
    for path in sorted(_HERE.iterdir()):
        if path.suffix in (".h", ".cc"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def _compile(place):
    """Compiles the module to `place`; a half-written file never lies there."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix="making-") as folder:
        made = pathlib.Path(folder) / place.name
        with subprocess.Popen(
            _command(made), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        ) as compiler:  # fmt: skip
            _state["compiler"] = compiler
            output, _ = compiler.communicate()
        _state["compiler"] = None
        if compiler.returncode != 0:
            errors = [line for line in output.splitlines() if "error" in line]
            raise RuntimeError("\n".join((errors or output.splitlines())[:10]))
        os.replace(made, place)


def _load(place):
    spec = importlib.util.spec_from_file_location(NAME, place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _make():
    try:
        place = cache_folder() / f"{NAME}-{_key()}.so"
        if not place.exists():
            messages.log.info("compiling autograd's node: %s", place)
            _compile(place)
        _state["module"] = _load(place)
    except Exception as error:  # no compiler, no header, a full disk: Python's path stays
        messages.log.info("backwards run by Python: autograd's node has no compiled module: %s", error)


def start():
    """Begins to make the module, unless that was begun."""
    with _lock:
        if _state["thread"] is None:
            thread = threading.Thread(target=_make, name="retrograd-node", daemon=True)
            _state["thread"] = thread
            thread.start()


def loaded(wait=False):
    """The module, or None where there is none (yet)."""
    if wait:
        start()
        _state["thread"].join()
    return _state["module"]


@atexit.register
def _stop():
    """A process that ends leaves no compiler behind, nor waits for one: the processes that the
    compiler has started hold its output open as well."""
    compiler = _state["compiler"]
    if compiler is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(compiler.pid, signal.SIGKILL)
        _state["thread"].join()
