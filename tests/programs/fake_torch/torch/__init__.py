"""A package that looks, to a reader of memory, like the parts of torch that name the compile in
progress. FAKE_TORCH_LAYOUT chooses whose shapes: "2.6", "2.9" or "2.13"."""
import os

LAYOUT = os.environ.get("FAKE_TORCH_LAYOUT", "2.13")
from . import version  # noqa: E402,F401
