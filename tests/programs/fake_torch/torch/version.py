import os

__version__ = os.environ.get("FAKE_TORCH_LAYOUT", "2.13") + ".0+fake"
