"""The structs of retrograd.h. Each that a caller fills in begins with its size."""

import ctypes

MAX_RANK = 12

progress_function = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p
)
log_function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
before_phase_function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32)
allocate_function = ctypes.CFUNCTYPE(
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)
release_function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class _Sized(ctypes.Structure):
    """A struct whose first field is its size: RG_INIT of the header."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(self), **fields)


class Error(_Sized):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("code", ctypes.c_int32),
        ("message", ctypes.c_char_p),
        ("node", ctypes.c_int64),
    ]


class Tensor(_Sized):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int32),
        ("kind", ctypes.c_int32),
        ("rank", ctypes.c_uint32),
        ("shape", ctypes.c_int64 * MAX_RANK),
        ("strides", ctypes.c_int64 * MAX_RANK),
        ("alignment", ctypes.c_int64),
        ("bytes", ctypes.c_int64),
        ("present", ctypes.c_int32),
    ]


class Symbol(_Sized):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("min", ctypes.c_int64),
        ("max", ctypes.c_int64),
        ("multiple_of", ctypes.c_int64),
        ("hint", ctypes.c_int64),
    ]


class Binding(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_int64)]


class Value(ctypes.Structure):
    _fields_ = [("node", ctypes.c_uint32), ("result", ctypes.c_uint32)]


class Attribute(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_int32),
        ("int_value", ctypes.c_int64),
        ("float_value", ctypes.c_double),
        ("string_value", ctypes.c_char_p),
        ("ints", ctypes.POINTER(ctypes.c_int64)),
        ("num_ints", ctypes.c_size_t),
    ]


class Allocator(ctypes.Structure):
    _fields_ = [
        ("user", ctypes.c_void_p),
        ("allocate", allocate_function),
        ("release", release_function),
    ]


class DeviceOptions(_Sized):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("cache_dir", ctypes.c_char_p),
        ("no_cache", ctypes.c_int32),
        ("compile_jobs", ctypes.c_int32),
        ("allocator", Allocator),
        ("tuned", ctypes.c_char_p),
        ("tuning_budget_s", ctypes.c_double),
    ]


class PlanOptions(_Sized):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("spec", ctypes.c_char_p),
        ("max_memory_bytes", ctypes.c_int64),
        ("cancellation", ctypes.c_void_p),
        ("settings", ctypes.c_char_p),
    ]


class ExecutableOptions(_Sized):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("spec", ctypes.c_char_p),
        ("max_memory_bytes", ctypes.c_int64),
        ("streams", ctypes.c_int32),
        ("caller_workspace", ctypes.c_int32),
        ("accumulate", ctypes.POINTER(ctypes.c_uint8)),
        ("num_accumulate", ctypes.c_size_t),
        ("progress", progress_function),
        ("progress_user", ctypes.c_void_p),
        ("log", log_function),
        ("log_user", ctypes.c_void_p),
        ("cancellation", ctypes.c_void_p),
        ("settings", ctypes.c_char_p),
        ("max_phases", ctypes.c_int32),
    ]


class Block(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_size_t), ("first", ctypes.c_uint32), ("last", ctypes.c_uint32)]


class Phases(_Sized):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("num_phases", ctypes.c_uint32),
        ("input_last", ctypes.POINTER(ctypes.c_uint32)),
        ("output_first", ctypes.POINTER(ctypes.c_uint32)),
        ("blocks", ctypes.POINTER(Block)),
        ("num_blocks", ctypes.c_size_t),
    ]


class Run(_Sized):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
        ("inputs", ctypes.POINTER(ctypes.c_void_p)),
        ("num_inputs", ctypes.c_size_t),
        ("outputs", ctypes.POINTER(ctypes.c_void_p)),
        ("num_outputs", ctypes.c_size_t),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_size_t),
        ("blocks", ctypes.POINTER(ctypes.c_void_p)),
        ("num_blocks", ctypes.c_size_t),
        ("before_phase", before_phase_function),
        ("phase_user", ctypes.c_void_p),
    ]
