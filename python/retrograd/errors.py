"""The one exception that callers of this package handle."""


class ExportError(RuntimeError):
    """A model that cannot be exported. The message says what, where, and what to do about it."""
