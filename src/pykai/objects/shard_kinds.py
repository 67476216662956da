"""The spec of SchedulingShard: one scheduler and its node pool.

The operator passes `usage_db_config` and `scenario_search_budgets` to the scheduler unchanged.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar

from msgspec import field

from pykai.objects.config_kinds import ActionOverride, ConfigPart, Labels, Object, Override
from pykai.objects.schema import DURATION_PATTERN, Doc, Duration, Quantity

_MOST = "A duration such as 90s or 1h30m."
ActionDuration = Annotated[str, Doc(f"The most for this action. {_MOST}", pattern=DURATION_PATTERN)]
BackoffDuration = Annotated[str, Doc("For this action. A duration such as 90s or 1h30m.", pattern=DURATION_PATTERN)]
GeneratorDuration = Annotated[str, Doc(f"The most for this way of searching. {_MOST}", pattern=DURATION_PATTERN)]
Depth = Annotated[int, Doc(format=None)]


class Strategy(ConfigPart):
    """binpack or spread, for workloads with and without GPUs."""

    gpu: Annotated[
        str,
        Doc(
            "How workloads that ask for GPUs are placed: binpack fills nodes one by one, spread levels them.",
            enum=["binpack", "spread"],
            default="binpack",
        ),
    ]
    cpu: Annotated[
        str,
        Doc(
            "How workloads that ask for no GPU are placed: binpack fills nodes one by one, spread levels them.",
            enum=["binpack", "spread"],
            default="binpack",
        ),
    ]


class MinRuntimeSpec(ConfigPart):
    """How long workloads run at least before they are taken down, where their queue says nothing."""

    preempt_min_runtime: Annotated[Duration, Doc("Before a workload of the same queue may preempt them.")] = ""
    reclaim_min_runtime: Annotated[Duration, Doc("Before another queue may take their resources back.")] = ""


class UsageParams(ConfigPart):
    """How past use is measured."""

    half_life_period: Annotated[
        Duration, Doc("After this time a use counts half; absent means that all use in the window counts the same.")
    ]
    window_size: Annotated[str, Doc("How far back use is counted, such as 1w or 24h. 1w if absent.")]
    window_type: Annotated[
        str,
        Doc(
            "sliding: always the last windowSize; tumbling: windows one after the other; cron: windows that begin by "
            "cronString. sliding if absent.",
            enum=["sliding", "tumbling", "cron"],
        ),
    ]
    tumbling_window_start_time: Annotated[
        datetime, Doc("When the first tumbling window begins; now if absent.", nullable=True)
    ]
    cron_string: Annotated[str, Doc("When a window begins, as a cron expression; for windowType cron.")]
    fetch_interval: Annotated[Duration, Doc("How often use is asked for; 1m if absent.")]
    staleness_period: Annotated[Duration, Doc("How old an answer may be and still count; 5m if absent.")]
    wait_timeout: Annotated[Duration, Doc("How long to wait for the first answer; 1m if absent.")]
    extra_params: Annotated[Labels, Doc("Further settings of the client.")]


class UsageDatabase(ConfigPart):
    """Where past use is read from, for fair shares over time; absent turns that off."""

    client_type: Annotated[str, Doc("The kind of database: prometheus.")]
    connection_string: Annotated[str, Doc("The address of the database.")]
    connection_string_env_var: Annotated[str, Doc("The environment variable that holds the address.")]
    usage_params: Annotated[UsageParams, Doc()]


class SearchBudgetsSpec(ConfigPart):
    """How long a search for workloads to take down may last; 0 is unlimited."""

    max_action_search_duration: Annotated[
        dict[str, ActionDuration], Doc("For a whole action, by its name or `default`; 5m if absent.")
    ]
    max_job_search_duration: Annotated[Duration, Doc("For one workload; 4m if absent.")]
    min_job_search_duration: Annotated[Duration, Doc("What one workload gets at least; 0s if absent.")]
    max_generator_search_duration: Annotated[
        dict[str, GeneratorDuration],
        Doc("For one way of searching, by its name or `default`; 2m if absent, 30s for `NodeLocalGreedy`."),
    ]
    min_failed_search_backoff: Annotated[
        dict[str, BackoffDuration],
        Doc(
            "How long no further search is made for a workload after one that found nothing, by the action or "
            "`default`. It doubles with every further one. Absent or 0: a search in every cycle."
        ),
    ]
    max_failed_search_backoff: Annotated[
        dict[str, BackoffDuration],
        Doc("How long it is at most, by the action or `default`; absent: as long as the first time."),
    ]


class ShardSpec(ConfigPart):
    """How this shard schedules."""

    placement_strategy: Annotated[Strategy, Doc("Whether work is packed or spread.")]
    min_runtime: Annotated[MinRuntimeSpec, Doc()]
    disruption_budgets: Annotated[
        str,
        Doc(
            "Whether evictions keep PodDisruptionBudgets: ignore them; prefer victims that break none; respect them, "
            "even where a workload then waits.",
            enum=["ignore", "prefer", "respect"],
            default="ignore",
        ),
    ] = "ignore"
    args: Annotated[
        Labels, Doc("Further command-line flags of the scheduler, by name without dashes; they win over all others.")
    ] = {}
    partition_label_value: Annotated[
        str,
        Doc(
            "The value of the node pool label of the nodes, queues and pod groups this shard handles; "
            "empty means those without the label."
        ),
    ] = ""
    queue_depth_per_action: Annotated[
        dict[str, Depth],
        Doc("How many workloads of each queue an action tries per cycle, by the name of the action; absent means all."),
    ] = {}
    k_value: Annotated[
        float | None, Doc("How strongly past use lowers a queue's share; 1 if absent, 0 ignores the past.")
    ] = None
    usage_db_config: Annotated[
        Object | None,
        Doc("Where past use is read from, for fair shares over time; absent turns that off.", shape=UsageDatabase),
    ] = field(default=None, name="usageDBConfig")
    scenario_search_budgets: Annotated[
        Object, Doc("How long a search for workloads to take down may last; 0 is unlimited.", shape=SearchBudgetsSpec)
    ] = {}
    plugins: Annotated[dict[str, Override], Doc("Changes to the scheduler's plugins, by name.")] = {}
    actions: Annotated[
        dict[str, Override], Doc("Changes to the scheduler's actions, by name.", shape=dict[str, ActionOverride])
    ] = {}
    go_mem_limit_ratio: ClassVar[
        Annotated[
            float,
            Doc(
                "Accepted for compatibility; without effect here.",
                minimum=0,
                exclusiveMinimum=True,
                maximum=1,
                default=0.9,
            ),
        ]
    ]
    go_mem_limit: ClassVar[Annotated[Quantity, Doc("Accepted for compatibility; without effect here.")]]
