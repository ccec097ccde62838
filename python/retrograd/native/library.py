"""libretrograd.so in this process: where it lies, its functions, and their failures as exceptions."""

import ctypes
import functools
import os
import pathlib

from retrograd.native import structs

NAME = "libretrograd.so"
_VERSIONED = NAME + ".0"


class Failure(RuntimeError):
    """What a function of the library reports: `code`, such as "RG_NOT_FOUND", a message, and the
    node of the graph that it is about, or None."""

    def __init__(self, code, message, node=None):
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.node = code, message, node


def _places():
    """Where the library may lie: beside this package, in an installed prefix, in a source tree."""
    here = pathlib.Path(__file__).resolve()
    yield here.parent / NAME
    prefix = here.parents[5] if len(here.parents) > 5 else here.parent
    yield prefix / "lib" / _VERSIONED
    yield from sorted(prefix.glob(f"lib/*/{_VERSIONED}"))
    root = here.parents[3]
    yield root / "build/release/bin" / NAME
    yield root / "bin" / NAME


def find(path=None):
    """The library at `path`, else the one that RETROGRAD_LIBRARY names, else the nearest one.

    FileNotFoundError, with all that was looked at, if there is none.
    """
    given = path or os.environ.get("RETROGRAD_LIBRARY")
    places = [pathlib.Path(given)] if given else list(_places())
    for place in places:
        if place.exists():
            return place
    raise FileNotFoundError(
        f"no {NAME} at {' or '.join(map(str, places))}: name it in RETROGRAD_LIBRARY, or build it "
        "with `make build`"
    )


_HANDLE = ctypes.c_void_p
_OUT = ctypes.POINTER(ctypes.c_void_p)
_TEXT = ctypes.c_char_p
_SIZE = ctypes.c_size_t
_CODE = ctypes.c_int32
_AT = ctypes.POINTER

# name: (result, parameters)
FUNCTIONS = {
    "code_name": (_TEXT, [_CODE]),
    "last_error": (_CODE, [_AT(structs.Error)]),
    "version": (_TEXT, []),
    "free": (None, [_HANDLE]),
    "graph_load": (_CODE, [_TEXT, _OUT]),
    "graph_parse": (_CODE, [_TEXT, _SIZE, _OUT]),
    "graph_deserialize": (_CODE, [_TEXT, _SIZE, _OUT]),
    "graph_save": (_CODE, [_HANDLE, _TEXT]),
    "graph_print": (_CODE, [_HANDLE, _OUT]),
    "graph_serialize": (_CODE, [_HANDLE, _OUT, _AT(_SIZE)]),
    "graph_destroy": (None, [_HANDLE]),
    "graph_num_inputs": (_SIZE, [_HANDLE]),
    "graph_num_outputs": (_SIZE, [_HANDLE]),
    "graph_input": (_CODE, [_HANDLE, _SIZE, _AT(structs.Tensor)]),
    "graph_output": (_CODE, [_HANDLE, _SIZE, _AT(structs.Tensor)]),
    "graph_num_symbols": (_SIZE, [_HANDLE]),
    "graph_symbol": (_CODE, [_HANDLE, _SIZE, _AT(structs.Symbol)]),
    "graph_bind": (_CODE, [_HANDLE, _AT(structs.Binding), _SIZE, _OUT]),
    "builder_create": (_CODE, [_TEXT, _OUT]),
    "builder_input": (_CODE, [_HANDLE, _AT(structs.Tensor), _AT(structs.Value)]),
    "builder_add": (
        _CODE,
        [
            _HANDLE, _TEXT, _AT(structs.Value), _SIZE, _AT(structs.Attribute), _SIZE,
            _AT(structs.Value),
        ],
    ),
    "builder_type": (_CODE, [_HANDLE, structs.Value, _AT(structs.Tensor)]),
    "builder_output": (_CODE, [_HANDLE, structs.Value, _TEXT, _AT(ctypes.c_int64)]),
    "builder_finish": (_CODE, [_HANDLE, _OUT]),
    "builder_destroy": (None, [_HANDLE]),
    "device_create": (_CODE, [_AT(structs.DeviceOptions), _OUT]),
    "device_model": (_TEXT, [_HANDLE]),
    "device_destroy": (None, [_HANDLE]),
    "device_allocate": (_CODE, [_HANDLE, _SIZE, _OUT]),
    "device_release": (_CODE, [_HANDLE, _HANDLE]),
    "device_copy_in": (_CODE, [_HANDLE, _HANDLE, _HANDLE, _SIZE]),
    "device_copy_out": (_CODE, [_HANDLE, _HANDLE, _HANDLE, _SIZE]),
    "cancellation_create": (_CODE, [_OUT]),
    "cancellation_cancel": (None, [_HANDLE]),
    "cancellation_destroy": (None, [_HANDLE]),
    "plan_create": (_CODE, [_HANDLE, _AT(structs.PlanOptions), _OUT]),
    "plan_explain": (_CODE, [_HANDLE, ctypes.c_int32, _OUT]),
    "plan_cost": (_CODE, [_HANDLE, _AT(ctypes.c_double), _AT(ctypes.c_int64)]),
    "plan_destroy": (None, [_HANDLE]),
    "executable_create": (_CODE, [_HANDLE, _HANDLE, _AT(structs.ExecutableOptions), _OUT]),
    "executable_phases": (_CODE, [_HANDLE, _HANDLE]),
    "executable_workspace": (_CODE, [_HANDLE, _AT(_SIZE), _AT(_SIZE)]),
    "executable_memory": (_CODE, [_HANDLE, _AT(_SIZE), _AT(_SIZE)]),
    "executable_run": (_CODE, [_HANDLE, _AT(structs.Run)]),
    "executable_describe": (_CODE, [_HANDLE, _OUT]),
    "executable_explain": (_CODE, [_HANDLE, ctypes.c_int32, _OUT]),
    "executable_time_steps": (_CODE, [_HANDLE, _AT(structs.Run), ctypes.c_int32, _OUT]),
    "executable_last_run_us": (ctypes.c_double, [_HANDLE]),
    "executable_destroy": (None, [_HANDLE]),
}  # fmt: skip


class Library:
    """The functions of a loaded library, by their names without `rg_`."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self._loaded = ctypes.CDLL(str(path))
        for name, (result, parameters) in FUNCTIONS.items():
            function = getattr(self._loaded, f"rg_{name}")
            function.restype, function.argtypes = result, parameters
            setattr(self, name, function)

    def address_of(self, name):
        """Of the function, for callers in C."""
        return ctypes.cast(getattr(self, name), ctypes.c_void_p).value

    def check(self, code):
        """Raises the calling thread's last Failure unless `code` is RG_OK."""
        if code == 0:
            return
        error = structs.Error()
        self.last_error(ctypes.byref(error))
        raise Failure(
            self.code_name(code).decode(),
            error.message.decode(),
            None if error.node < 0 else error.node,
        )

    def made(self, function, *arguments):
        """The handle that `rg_function` makes of the arguments."""
        made = ctypes.c_void_p()
        self.check(getattr(self, function)(*arguments, ctypes.byref(made)))
        return made

    def text(self, function, *arguments):
        """The text that `rg_function` makes of the arguments."""
        made = self.made(function, *arguments)
        try:
            return ctypes.string_at(made).decode()
        finally:
            self.free(made)


@functools.cache
def _loaded(path):
    return Library(path)


@functools.cache
def _found(given):
    """`find`, which looks through folders, once for each answer. given: what it depends on."""
    return find(given).resolve()


def load(library=None):
    """The Library itself, or that of the path, or of what `find` finds; one for each file."""
    if isinstance(library, Library):
        return library
    return _loaded(_found(library or os.environ.get("RETROGRAD_LIBRARY")))


class Handle:
    """An object of the library, destroyed by `close`, at the end of a `with`, or with its last
    reference."""

    def __init__(self, library, handle, destroy):
        self.library, self._handle, self._destroy = library, handle, getattr(library, destroy)

    @property
    def handle(self):
        """What functions of the library take; ValueError after `close`."""
        if self._handle is None:
            raise ValueError(f"this {type(self).__name__} is closed")
        return self._handle

    def close(self):
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None:
            self._destroy(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()
