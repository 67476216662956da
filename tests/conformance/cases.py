"""Cases as the adapters read them.

The format leaves out zero values and writes empty maps and lists of Go as null. A `Record` answers for a key that it
lacks, or that is null, with the zero value of the key: an adapter reads `given["k_value"]` whether or not the case has
it, and `in` still tells the two apart. A case that an adapter has no counterpart for, or that refers to something it
does not contain, is `NotApplicable`, with the reason; adapters raise nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_MAPS = """
    allocatable config domain domains_by_level expected fair_share feature_gates gp gpu_requirement gvk idle
    idle_or_releasing input job k8s karta l l_queue labels metadata new_pod_group node node_details node_info obj
    object old_pod_group pending_job pg plugin_arguments pod pod_group pod_group_metadata pods preemptor queues r
    r_queue reclaimee_queue reclaimee_remaining_share reclaimee_resources_by_queue reclaimer reclaimer_queue
    releasing requested_share resolved root root_sub_group_set scenario scores selector spec state_before sub_group
    task tasks_resources topology_constraint topology_tree topology_trees total used_shared_gpus_memory victim
    victims
"""
_LISTS = """
    children cluster_objects domains_unordered fitting_nodes jobs levels node_set node_subsets owners path pod_sets
    scaling_pods sub_group_sets supported_kinds supported_types tasks tasks_to_allocate unschedulable_pods
"""
_NUMBERS = """
    allocatable_pods gpu_memory_mib k_value min_available min_sub_group pg_index priority remaining replicas_size
    saturation_multiplier seconds stuck_in_releasing_threshold_seconds tasks_count
"""
_FLAGS = """
    allowed deterministic dynamic_resources_enabled has_dedicated_plugin has_more_tasks is_legacy_mig_task
    is_schedulable karta_fallback_enabled mutated schedulable
"""
_TEXTS = """
    default_config_per_type_config_map_namespace default_priority_class_for_job function gpu_idx gpu_memory_str
    group id kind level max_depth_level name namespace nodeLabel node_name node_pool_key operation plugin_name
    pod_gang_name pod_name pod_namespace preemptibility preferred_level queue queue_label_key queue_name
    reclaimee_queue_id replica_spec_name request_type resource status topology uid value version
"""
_ZEROS: dict[str, type] = {
    **dict.fromkeys(_MAPS.split(), dict),
    **dict.fromkeys(_LISTS.split(), list),
    **dict.fromkeys(_NUMBERS.split(), int),
    **dict.fromkeys(_FLAGS.split(), bool),
    **dict.fromkeys(_TEXTS.split(), str),
}


class NotApplicable(Exception):  # noqa: N818  (a verdict about a case, not an error)
    """The case has no counterpart here; the text is the reason."""


class Record(dict[str, Any]):
    """An object of a case: a missing or null key has the zero value of its type."""

    def __getitem__(self, key: str) -> Any:
        found = super().get(key)
        return self.__missing__(key) if found is None else found

    def __missing__(self, key: str) -> Any:
        zero = _ZEROS.get(key)
        return None if zero is None else Record() if zero is dict else zero()

    def get(self, key: str, default: Any = None) -> Any:
        found = super().get(key)
        return default if found is None else found


def read(path: Path) -> Record:
    """A suite file."""
    found: Record = json.loads(path.read_text(), object_hook=Record)
    return found


def choose(table: Mapping[str, T], name: str) -> T:
    """The entry for a function or an operation of the format."""
    if name not in table:
        raise NotApplicable(f"no counterpart of {name or 'a case that names no operation'}")
    return table[name]
