"""The one exception that callers of this package handle."""


class ExportError(RuntimeError):
    """A model that cannot be exported. The message says what, where, and what to do about it.

    node: the name of the fx node whose op it is about, if it is about one.
    """

    def __init__(self, message, node=None):
        super().__init__(message)
        self.node = node
