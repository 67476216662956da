"""The schema of SchedulingShard's spec: one scheduler and the nodes it is responsible for."""

from __future__ import annotations

from typing import Final

from pykai.objects.schema import (
    DURATION_PATTERN,
    Schema,
    choice,
    decimal,
    duration,
    labels,
    mapping,
    moment,
    quantity,
    record,
    switch,
    text,
    whole,
)


def _strategy(resource: str) -> Schema:
    doc = f"How workloads that ask for {resource} are placed: binpack fills nodes one by one, spread levels them."
    return choice(doc, "binpack", "spread", default="binpack")


def _override(what: str, fields: dict[str, Schema]) -> Schema:
    own = {
        "enabled": switch(f"Whether the {what} runs; absent leaves it as it is."),
        "priority": whole(f"The place of the {what} in the order, higher first; absent leaves it as it is."),
    }
    return record(f"What to change about the {what}.", own | fields)


_USAGE = record(
    "How past use is measured.",
    {
        "halfLifePeriod": duration(
            "After this time a use counts half; absent means that all use in the window counts the same."
        ),
        "windowSize": text("How far back use is counted, such as 1w or 24h. 1w if absent."),
        "windowType": choice(
            "sliding: always the last windowSize; tumbling: windows one after the other; cron: windows that begin by "
            "cronString. sliding if absent.",
            "sliding",
            "tumbling",
            "cron",
        ),
        "tumblingWindowStartTime": moment("When the first tumbling window begins; now if absent.", nullable=True),
        "cronString": text("When a window begins, as a cron expression; for windowType cron."),
        "fetchInterval": duration("How often use is asked for; 1m if absent."),
        "stalenessPeriod": duration("How old an answer may be and still count; 5m if absent."),
        "waitTimeout": duration("How long to wait for the first answer; 1m if absent."),
        "extraParams": labels("Further settings of the client."),
    },
)

SPEC: Final = record(
    "How this shard schedules.",
    {
        "args": labels(
            "Further command-line flags of the scheduler, by name without dashes; they win over all others."
        ),
        "goMemLimitRatio": decimal(
            "Accepted for compatibility; without effect here.", minimum=0, exclusiveMinimum=True, maximum=1, default=0.9
        ),
        "goMemLimit": quantity("Accepted for compatibility; without effect here."),
        "placementStrategy": record(
            "Whether work is packed or spread.", {"gpu": _strategy("GPUs"), "cpu": _strategy("no GPU")}
        ),
        "partitionLabelValue": text(
            "The value of the node pool label of the nodes, queues and pod groups this shard handles; "
            "empty means those without the label."
        ),
        "queueDepthPerAction": mapping(
            "How many workloads of each queue an action tries per cycle, by the name of the action; absent means all.",
            {"type": "integer"},
        ),
        "minRuntime": record(
            "How long workloads run at least before they are taken down, where their queue says nothing.",
            {
                "preemptMinRuntime": duration("Before a workload of the same queue may preempt them."),
                "reclaimMinRuntime": duration("Before another queue may take their resources back."),
            },
        ),
        "kValue": decimal("How strongly past use lowers a queue's share; 1 if absent, 0 ignores the past."),
        "usageDBConfig": record(
            "Where past use is read from, for fair shares over time; absent turns that off.",
            {
                "clientType": text("The kind of database: prometheus."),
                "connectionString": text("The address of the database."),
                "connectionStringEnvVar": text("The environment variable that holds the address."),
                "usageParams": _USAGE,
            },
        ),
        "scenarioSearchBudgets": record(
            "How long a search for workloads to take down may last; 0 is unlimited.",
            {
                "maxActionSearchDuration": mapping(
                    "For a whole action, by its name or `default`; 5m if absent.",
                    text("The most for this action. A duration such as 90s or 1h30m.", pattern=DURATION_PATTERN),
                ),
                "maxJobSearchDuration": duration("For one workload; 4m if absent."),
                "minJobSearchDuration": duration("What one workload gets at least; 0s if absent."),
                "maxGeneratorSearchDuration": mapping(
                    "For one way of searching, by its name or `default`; 2m if absent, 30s for `NodeLocalGreedy`.",
                    text(
                        "The most for this way of searching. A duration such as 90s or 1h30m.", pattern=DURATION_PATTERN
                    ),
                ),
            },
        ),
        "plugins": mapping(
            "Changes to the scheduler's plugins, by name.",
            _override("plugin", {"arguments": labels("The plugin's arguments; they replace all default ones.")}),
        ),
        "actions": mapping("Changes to the scheduler's actions, by name.", _override("action", {})),
    },
)
