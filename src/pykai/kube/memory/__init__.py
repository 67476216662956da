"""An in-memory API server with the rules of the real one."""

from pykai.kube.memory.core import Admission
from pykai.kube.memory.memory_api import MemoryApi

__all__ = ["Admission", "MemoryApi"]
