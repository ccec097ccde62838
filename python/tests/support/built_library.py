"""The built libretrograd.so."""

import conftest
import pytest
from measure import ours

LIBRARY = conftest.BIN / ours.NAME
needs_library = pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")
