"""All components on the in-memory API server, for simulations: composed as `kai all`, or each as its own process."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pykai.admission.certificates import AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE
from pykai.admission.pod_rules import PodSettings
from pykai.admission.review import AdmissionRules, webhooks
from pykai.cli import all as everything
from pykai.cli import binder, node_scale_adjuster, operator, podgroup_controller, podgrouper, queue_controller
from pykai.cli import scheduler as scheduler_command
from pykai.cli.component import Compose, Process, run_composition
from pykai.cli.resource_reservation import on_hollow_nodes
from pykai.config.scheduler_config import SchedulerConfig
from pykai.controllers.node_scale import NodeScalerSettings, ScalingPodTemplate, ScalingSettings
from pykai.controllers.operator.controller import OperatorSettings
from pykai.controllers.operator.desired import Validators
from pykai.controllers.operator.installation import OperatorEnvironment
from pykai.hollow.kubelet_settings import OnStart
from pykai.kube.api import Api, Object
from pykai.kube.api_resources import LEASE
from pykai.kube.lease import Election
from pykai.kube.memory import Admission
from pykai.model.params import SchedulerParams
from pykai.objects import crds, names
from pykai.observe import logs
from pykai.scheduler.decision import Decision
from pykai.scheduler.queueing_hints import Debounce
from pykai.scheduler.scheduler import unobserved
from pykai.simulate.simulation import Hooks

_PROCESS = Process("kai", metrics_address="0", health_address="0")
OPERATOR = "operator"


def _operator_settings() -> OperatorSettings:
    """Return the operator's settings, with a constant serving certificate: histories are reproducible."""
    data = {name: base64.b64encode(name.encode()).decode() for name in (AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE)}
    parts = replace(operator.WEBHOOKS, issue=lambda service, namespace, present: present or data)
    validators = Validators(operator.check_command_line, operator.check_configuration)
    return OperatorSettings(parts, OperatorEnvironment(), operator.ping, validators)


class SimulatedProduct:
    """The product of a simulation: all components as `kai all` composes them, without listening on ports."""

    def __init__(
        self,
        config: SchedulerConfig,
        params: SchedulerParams | None = None,
        debounce: Debounce | None = None,
        observe: Callable[[Decision], None] = unobserved,
    ) -> None:
        self._observe = observe
        self._config = config
        self._debounce = debounce or Debounce()
        self._params = params or SchedulerParams()
        self._pods = PodSettings(gpu_sharing=True, fraction_runtime_class="")
        self._faults = logs.collect_errors()
        self.scaling = False
        """Whether the node scale adjuster runs as well."""
        self.operated = False
        """Whether the operator runs as well: it deploys a second system beside the running components."""

    def admission(self, queues: Callable[[], Mapping[str, Object]], warn: Callable[[str], None]) -> Sequence[Admission]:
        """See `cluster.Product`."""
        return [webhooks(AdmissionRules(self._pods, queues), warn)]

    def definitions(self) -> Sequence[Object]:
        """See `cluster.Product`."""
        return crds.manifests()

    def faults(self) -> Sequence[str]:
        """See `cluster.Product`: the errors that components log."""
        return self._faults

    def programs(self, api: Api) -> OnStart:
        """See `cluster.Product`."""
        return on_hollow_nodes(lambda: api)

    async def run(self, api: Api, hooks: Hooks, ready: asyncio.Event) -> None:
        """See `cluster.Product`."""
        await run_composition(api, _PROCESS, partial(everything.compose, self._settings(hooks)), all_ready=ready)

    @property
    def components(self) -> Sequence[str]:
        """See `faults.run.Deployment`."""
        return tuple(self._separate_components(self._settings(Hooks(lambda _snapshot, _plan: None, None))))

    @property
    def beside(self) -> Sequence[str]:
        """See `faults.run.Deployment`."""
        return (OPERATOR,) if self.operated else ()

    async def run_process(self, name: str, api: Api, hooks: Hooks) -> None:
        """See `faults.run.Deployment`."""
        settings = self._settings(hooks)
        compose = partial(everything.compose, settings) if name == "all" else self._separate_components(settings)[name]
        lease = LEASE.ref(names.OPERATOR_LEASE if name == OPERATOR else everything.LEASE, names.SYSTEM_NAMESPACE)
        election = Election(api, lease, hooks.replica) if hooks.replica else None
        await run_composition(api, _PROCESS, compose, election)

    def _separate_components(self, settings: everything.AllSettings) -> dict[str, Compose]:
        """Return every component as its own process, as the chart deploys them."""
        components: dict[str, Compose] = {
            "scheduler": partial(scheduler_command.compose, settings.scheduler),
            "binder": partial(binder.compose, settings.binder),
            "pod-grouper": partial(podgrouper.compose, settings.grouper),
            "pod-group-controller": partial(podgroup_controller.compose, settings.groups, None),
            "queue-controller": partial(queue_controller.compose, settings.queues),
        }
        if settings.scaling is not None:
            components["node-scale-adjuster"] = partial(node_scale_adjuster.compose, settings.scaling)
        if self.operated:
            components[OPERATOR] = partial(operator.compose, _operator_settings())
        return components

    def _settings(self, hooks: Hooks) -> everything.AllSettings:
        defaults = everything.settings_for(names.SCHEDULER_NAME, self._pods, None)
        options = replace(defaults.scheduler.options, params=self._params, debounce=self._debounce)

        def observe(decision: Decision) -> None:
            hooks.observe(decision.snapshot, decision.plan)
            self._observe(decision)

        scheduler = replace(defaults.scheduler, options=options, config=self._config, plugin_port=None, observe=observe)
        if hooks.past is not None:
            usage = hooks.past
            scheduler = replace(scheduler, usage_source=lambda _: usage)
        reservations = replace(defaults.binder.reservations, runtime_class="")
        scheduler = replace(scheduler, takes_over=bool(hooks.replica))
        scaling = NodeScalerSettings(ScalingSettings(ScalingPodTemplate("scaling"), names.SCHEDULER_NAME))
        return replace(
            defaults,
            scheduler=scheduler,
            binder=replace(defaults.binder, reservations=reservations),
            scaling=scaling if self.scaling else None,
        )
