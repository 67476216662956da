"""dynamicresources: a structured allocator for devices of ResourceSlices, and the plugin around it."""

from pykai.plugins.dra.session import DynamicResources, Session

__all__ = ["DynamicResources", "Session"]
