"""Backwards that autograd runs without Python, by a node in C++."""

from retrograd.backend.node import extension
from retrograd.backend.node.direct import DirectGradients

__all__ = ["DirectGradients", "extension"]
