"""Use of the cluster over time, for time-based fair share: which part of it each queue held in a window of the past.

`read_usage_config(document)` reads the scheduler's `usageDBConfig`, `source_of(config)` connects to the database it
names, and a `UsageLister` on that source keeps the newest answer: `lister.current` is what the scheduler hands to
`ClusterCache.snapshot`. Use is normalised: 1.0 is the whole cluster during the whole window.
"""

from pykai.config.usage import UsageConfig, read_usage_config
from pykai.controllers.usage.fakes import FakeSource, HistorySource
from pykai.controllers.usage.lister import UsageLister
from pykai.controllers.usage.source import QueueUsage, UsageError, UsageSource, source_of

__all__ = [
    "FakeSource",
    "HistorySource",
    "QueueUsage",
    "UsageConfig",
    "UsageError",
    "UsageLister",
    "UsageSource",
    "read_usage_config",
    "source_of",
]
