"""dynamicresources: a structured allocator for devices of ResourceSlices, and the plugin around it."""

from pykai.plugins.dra.plugin import DynamicResources, allocations, claim_statuses, extended_allocation

__all__ = ["DynamicResources", "allocations", "claim_statuses", "extended_allocation"]
