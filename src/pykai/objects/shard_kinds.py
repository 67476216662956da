"""The spec of SchedulingShard: one scheduler and its node pool.

The operator passes `usage_db_config` and `scenario_search_budgets` to the scheduler unchanged.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar

from msgspec import field

from pykai.objects.config_kinds import ActionOverride, ConfigPart, Labels, Object, Override
from pykai.objects.schema import DURATION_PATTERN, Doc, Duration, Quantity

_EXAMPLE = "A duration such as 90s or 1h30m."
ActionDuration = Annotated[str, Doc(f"The maximum for this action. {_EXAMPLE}", pattern=DURATION_PATTERN)]
BackoffDuration = Annotated[str, Doc(f"The backoff for this action. {_EXAMPLE}", pattern=DURATION_PATTERN)]
GeneratorDuration = Annotated[str, Doc(f"The maximum for this generator. {_EXAMPLE}", pattern=DURATION_PATTERN)]
Depth = Annotated[int, Doc(format=None)]


class Strategy(ConfigPart):
    """The placement strategy for workloads with and without GPUs."""

    gpu: Annotated[
        str,
        Doc(
            "For workloads that request GPUs: binpack fills nodes one by one, spread levels their use.",
            enum=["binpack", "spread"],
            default="binpack",
        ),
    ]
    cpu: Annotated[
        str,
        Doc(
            "For workloads without GPUs: binpack fills nodes one by one, spread levels their use.",
            enum=["binpack", "spread"],
            default="binpack",
        ),
    ]


class MinRuntimeSpec(ConfigPart):
    """The minimum runtime of workloads before they may be evicted, unless their queue sets it."""

    preempt_min_runtime: Annotated[
        Duration, Doc("The minimum runtime before a workload of the same queue may preempt them.")
    ] = ""
    reclaim_min_runtime: Annotated[
        Duration, Doc("The minimum runtime before another queue may reclaim their resources.")
    ] = ""


class UsageParams(ConfigPart):
    """How past use is measured."""

    half_life_period: Annotated[
        Duration, Doc("The half-life of past use; absent: all use in the window has the same weight.")
    ]
    window_size: Annotated[str, Doc("The length of the window, such as 1w or 24h. 1w if absent.")]
    window_type: Annotated[
        str,
        Doc(
            "sliding: the last windowSize; tumbling: consecutive windows of windowSize; cron: windows that begin by "
            "cronString. sliding if absent.",
            enum=["sliding", "tumbling", "cron"],
        ),
    ]
    tumbling_window_start_time: Annotated[
        datetime, Doc("The start of the first tumbling window; the scheduler's start if absent.", nullable=True)
    ]
    cron_string: Annotated[str, Doc("The start of each window as a cron expression; for windowType cron.")]
    fetch_interval: Annotated[Duration, Doc("The interval of queries to the database; 1m if absent.")]
    staleness_period: Annotated[Duration, Doc("The maximum age of usage data; 5m if absent.")]
    wait_timeout: Annotated[Duration, Doc("How long to wait for the first result; 1m if absent.")]
    extra_params: Annotated[Labels, Doc("Additional settings of the client.")]


class UsageDatabase(ConfigPart):
    """The database of past use, for time-based fair share."""

    client_type: Annotated[str, Doc("The type of the database: prometheus.")]
    connection_string: Annotated[str, Doc("The address of the database.")]
    connection_string_env_var: Annotated[str, Doc("The environment variable that holds the address.")]
    usage_params: Annotated[UsageParams, Doc()]


class SearchBudgetsSpec(ConfigPart):
    """Time limits of searches for victims; 0 is unlimited."""

    max_action_search_duration: Annotated[
        dict[str, ActionDuration], Doc("The maximum per action, by action or `default`; 5m if absent.")
    ]
    max_job_search_duration: Annotated[Duration, Doc("The maximum for one workload; 4m if absent.")]
    min_job_search_duration: Annotated[Duration, Doc("The minimum for one workload; 0s if absent.")]
    max_generator_search_duration: Annotated[
        dict[str, GeneratorDuration],
        Doc("The maximum per generator, by generator or `default`; 2m if absent, 30s for `NodeLocalGreedy`."),
    ]
    min_failed_search_backoff: Annotated[
        dict[str, BackoffDuration],
        Doc(
            "The initial backoff after an unsuccessful search for a workload, by action or `default`. It doubles with "
            "each further one. Absent or 0: a search in every cycle."
        ),
    ]
    max_failed_search_backoff: Annotated[
        dict[str, BackoffDuration],
        Doc("The maximum backoff, by action or `default`; absent: the initial one."),
    ]


class ShardSpec(ConfigPart):
    """The settings of the shard's scheduler."""

    placement_strategy: Annotated[Strategy, Doc("Whether workloads are packed or spread.")]
    min_runtime: Annotated[MinRuntimeSpec, Doc()]
    disruption_budgets: Annotated[
        str,
        Doc(
            "How evictions treat PodDisruptionBudgets: ignore them; prefer victims that violate none; respect them, "
            "even if a workload then waits.",
            enum=["ignore", "prefer", "respect"],
            default="ignore",
        ),
    ] = "ignore"
    args: Annotated[
        Labels, Doc("Command-line flags of the scheduler, by name without dashes; they override all other settings.")
    ] = {}
    partition_label_value: Annotated[
        str,
        Doc(
            "The value of the node pool label of the nodes, queues and pod groups of this shard; "
            "empty: those without the label."
        ),
    ] = ""
    queue_depth_per_action: Annotated[
        dict[str, Depth],
        Doc("The maximum number of workloads of each queue that an action tries per cycle, by action; absent: all."),
    ] = {}
    k_value: Annotated[
        float | None, Doc("How strongly past use lowers a queue's fair share; 1 if absent, 0 ignores past use.")
    ] = None
    usage_db_config: Annotated[
        Object | None,
        Doc("The database of past use, for time-based fair share; absent disables it.", shape=UsageDatabase),
    ] = field(default=None, name="usageDBConfig")
    scenario_search_budgets: Annotated[
        Object, Doc("Time limits of searches for victims; 0 is unlimited.", shape=SearchBudgetsSpec)
    ] = {}
    plugins: Annotated[dict[str, Override], Doc("Overrides of the scheduler's plugins, by name.")] = {}
    actions: Annotated[
        dict[str, Override], Doc("Overrides of the scheduler's actions, by name.", shape=dict[str, ActionOverride])
    ] = {}
    go_mem_limit_ratio: ClassVar[
        Annotated[
            float,
            Doc(
                "Accepted for compatibility; no effect.",
                minimum=0,
                exclusiveMinimum=True,
                maximum=1,
                default=0.9,
            ),
        ]
    ]
    go_mem_limit: ClassVar[Annotated[Quantity, Doc("Accepted for compatibility; no effect.")]]
