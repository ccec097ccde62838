"""Devices and their memory."""

import ctypes
import os

from retrograd.native import structs
from retrograd.native.library import Handle, load


def _characters(view):
    """The memory of a writable view, as ctypes passes it."""
    return (ctypes.c_char * view.nbytes).from_buffer(view) if view.nbytes else None


class Device(Handle):
    """"host", "cuda", "cuda:1", "hip" or "hip:1". It may be shared by threads."""

    def __init__(
        self, name="host", cache_dir=None, cache=True, compile_jobs=0, library=None, *,
        tuned=None, tuning_budget_s=0,
    ):  # fmt: skip
        """cache_dir: of compiled kernels and timed choices; None: the user's. compile_jobs: threads
        or compilers at once; 0: one a core, at most 8. tuned: a file of `retrograd tune`, whose
        choices are taken. tuning_budget_s: for timing library calls; 0: no limit."""
        loaded = load(library)
        options = structs.DeviceOptions(
            name=name.encode(), no_cache=int(not cache), compile_jobs=compile_jobs,
            cache_dir=None if cache_dir is None else os.fsencode(cache_dir),
            tuned=None if tuned is None else os.fsencode(tuned), tuning_budget_s=tuning_budget_s,
        )  # fmt: skip
        handle = loaded.made("device_create", ctypes.byref(options))
        super().__init__(loaded, handle, "device_destroy")
        self.name = name

    @property
    def model(self):
        """"NVIDIA H200"."""
        return self.library.device_model(self.handle).decode()


class Memory(Handle):
    """Bytes of a device's memory, at a multiple of 256."""

    def __init__(self, device, size):
        self.device, self.nbytes = device, size
        data = device.library.made("device_allocate", device.handle, size)
        super().__init__(device.library, data, "device_release")

    def close(self):
        data, self._handle = getattr(self, "_handle", None), None
        if data is not None:
            self.library.device_release(self.device.handle, data)

    @property
    def address(self):
        return self.handle.value or 0

    def copy_in(self, buffer):
        """From what has the buffer protocol, of as many bytes. Has happened when it returns."""
        source = self._whole(buffer)
        if source.readonly:
            data = bytes(source)
        else:
            data = _characters(source)
        self.library.check(
            self.library.device_copy_in(self.device.handle, self.handle, data, source.nbytes)
        )

    def copy_out(self, buffer):
        """To what has the buffer protocol and may be written, of as many bytes. Has happened when it
        returns."""
        to = self._whole(buffer)
        self.library.check(
            self.library.device_copy_out(
                self.device.handle, _characters(to), self.handle, to.nbytes
            )
        )

    def _whole(self, buffer):
        view = memoryview(buffer)
        if not view.c_contiguous or view.nbytes != self.nbytes:
            raise ValueError(
                f"{view.nbytes} bytes{'' if view.c_contiguous else ' with gaps'} do not fit these "
                f"{self.nbytes} bytes of memory"
            )
        return view.cast("B") if view.nbytes else view
