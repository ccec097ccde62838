"""Files that appear whole or not at all."""

import os
import pathlib
import tempfile


def write_atomically(path, data):
    """Writes bytes to a temporary file beside `path` and renames it: no reader sees half a file, and
    of several writers of one path the last one wins. The temporary file's name is its writer's
    alone."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
