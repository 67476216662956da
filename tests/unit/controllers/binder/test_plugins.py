"""`--plugins`: what may be said, in which order steps run, and what is refused with which words."""

from __future__ import annotations

import pytest

from pykai.config.fields import FieldError
from pykai.controllers.binder.plugins import DEFAULTS, Plugin, StepContext, build_steps, read_plugins
from pykai.kube.informer import InformerFactory
from pykai.kube.memory import MemoryApi


def order(text: str) -> list[str]:
    api = MemoryApi(lambda: 0.0)
    return [
        step.name for step in build_steps(read_plugins(text), StepContext(api, InformerFactory(api), lambda pod: None))
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["volumebinding", "dynamicresources", "gpusharing"]),
        ('{"gpusharing": {"priority": 400}}', ["gpusharing", "volumebinding", "dynamicresources"]),
        ('{"gpusharing": {"priority": 300}}', ["gpusharing", "volumebinding", "dynamicresources"]),
        ('{"volumebinding": {"enabled": false}}', ["dynamicresources", "gpusharing"]),
        ('{"hamicore": {"enabled": true}}', ["volumebinding", "dynamicresources", "gpusharing"]),
    ],
)
async def test_order(text: str, expected: list[str]) -> None:
    assert order(text) == expected


def test_fields_are_laid_over_the_defaults_one_by_one() -> None:
    read = read_plugins(
        '{"volumebinding": {"priority": 1}, "gpusharing": {"arguments": {"cdiEnabled": "true", "x": "y"}}}'
    )
    assert read["volumebinding"] == Plugin(True, 1, {"bindTimeoutSeconds": "120"})
    assert read["gpusharing"] == Plugin(True, 100, {"cdiEnabled": "true", "x": "y"})
    assert read["dynamicresources"] == DEFAULTS["dynamicresources"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "plugins: not JSON"),
        ("[]", "plugins: expected a map, got a list"),
        ('{"gpusharing": {"enabled": "yes"}}', "plugins.gpusharing.enabled: expected true or false, got a string"),
        ('{"gpusharing": {"speed": 1}}', "unknown field 'speed'"),
        ('{"magic": {}}', "plugins.magic: failed to get binder plugin magic"),
        ('{"gpusharing": {"arguments": {}}}', 'plugins.gpusharing.arguments: missing argument "cdiEnabled"'),
        ('{"gpusharing": {"enable": true}}', "plugins.gpusharing: unknown field 'enable'"),
        ('{"gpusharing": {"arguments": {"cdiEnabled": "maybe"}}}', 'invalid argument "cdiEnabled"="maybe"'),
        (
            '{"volumebinding": {"arguments": {"bindTimeoutSeconds": "soon"}}}',
            'invalid argument "bindTimeoutSeconds"="soon"',
        ),
        (
            '{"hamicore": {"enabled": true}, "gpusharing": {"enabled": false}}',
            '"hamicore" plugin requires "gpusharing" plugin to be enabled',
        ),
        (
            '{"hamicore": {"enabled": true, "priority": 100}}',
            'to run before it .expected "gpusharing".priority > "hamicore".priority, got 100 <= 100',
        ),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(FieldError, match=message):
        read_plugins(text)


def test_the_arguments_of_a_disabled_plugin_do_not_matter() -> None:
    assert not read_plugins('{"volumebinding": {"enabled": false, "arguments": {}}}')["volumebinding"].enabled
