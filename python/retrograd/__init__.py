"""Retrograd's exporter: a PyTorch model's backward graph as a file.

paths = retrograd.export_backward(model, (x, y), path="model.bwd.pb", bundle=True)
"""

from retrograd.errors import ExportError
from retrograd.export import export_backward

__all__ = ["ExportError", "export_backward"]
