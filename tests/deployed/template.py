"""The template as data: read, translated as SAM does it, and resolved for given parameters as CloudFormation does it.

Nothing here judges; the checks in template_*.py do.
"""

import copy
import functools
import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from places import REPOSITORY as ROOT
from places import TOOLS

TEMPLATE = ROOT / "template.yaml"

# "Pseudo parameters reference", with values of an account that does not exist.
PSEUDO = {
    "AWS::AccountId": "123456789012",
    "AWS::Region": "eu-central-1",
    "AWS::Partition": "aws",
    "AWS::StackName": "leasehold-test",
    "AWS::StackId": "arn:aws:cloudformation:eu-central-1:123456789012:stack/leasehold-test/1",
    "AWS::URLSuffix": "amazonaws.com",
    "AWS::NotificationARNs": [],
}
NO_VALUE = {"Ref": "AWS::NoValue"}
MISSING = object()
SUB_NAME = re.compile(r"\$\{([^!}][^}]*)\}")


# ---------------------------------------------------------------- reading


class Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short tags, and without keys that are there twice."""


def _short_tag(loader: Loader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)
    if suffix == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}


def _mapping(loader: Loader, node: yaml.MappingNode) -> dict[str, Any]:
    keys = [loader.construct_object(key) for key, _ in node.value]
    for key in keys:
        if keys.count(key) > 1:
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is there twice", node.start_mark)
    return loader.construct_mapping(node, deep=True)


Loader.add_multi_constructor("!", _short_tag)
Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


class Template:
    """A template: `text` with its comments, `raw` as written, `deployed` as SAM makes it."""

    def __init__(self, text: str, raw: dict[str, Any] | None = None) -> None:
        self.text = text
        self.raw = yaml.load(text, Loader) if raw is None else raw

    @functools.cached_property
    def deployed(self) -> dict[str, Any]:
        """What CloudFormation is told: no `AWS::Serverless` resources, no Globals."""
        return translate(self.raw)

    def changed(self, *path: Any, to: Any = MISSING) -> "Template":
        """A copy in which what lies at `path` is `to`, or is not there at all."""
        raw = copy.deepcopy(self.raw)
        node = raw
        for step in path[:-1]:
            node = node[step]
        if to is MISSING:
            del node[path[-1]]
        else:
            node[path[-1]] = to
        return Template(self.text, raw)

    def of_type(self, kind: str) -> dict[str, dict[str, Any]]:
        """Resources of that type, as deployed."""
        return {name: one for name, one in self.deployed["Resources"].items() if one["Type"] == kind}


def read(path: Path = TEMPLATE) -> Template:
    """Reads a template file."""
    return Template(path.read_text(encoding="utf-8"))


# ---------------------------------------------------------------- translating


def translate(raw: dict[str, Any]) -> dict[str, Any]:
    """As the transform AWS::Serverless-2016-10-31 does it, by the library that it is made of. The code lies in a
    bucket by then."""
    from samtranslator.parser.parser import Parser
    from samtranslator.translator.translator import Translator

    class Region:
        region_name = PSEUDO["AWS::Region"]

    template = copy.deepcopy(raw)
    template["Globals"]["Function"]["CodeUri"] = "s3://bucket/key"
    defaults = {name: str(one.get("Default", "")) for name, one in template["Parameters"].items()}
    return Translator({}, Parser(), boto_session=Region()).translate(template, parameter_values=defaults)


# ---------------------------------------------------------------- walking


def walk(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every node under this one, with the way to it."""
    yield path, node
    if isinstance(node, dict):
        for key, value in node.items():
            yield from walk(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from walk(value, (*path, index))


def references(node: Any) -> Iterator[tuple[str, str | None]]:
    """What Ref, GetAtt and Sub name under this node: (name, attribute); no attribute for what a Ref would give."""
    if isinstance(node, list):
        for value in node:
            yield from references(value)
    elif isinstance(node, dict):
        if set(node) == {"Ref"}:
            yield node["Ref"], None
        elif set(node) == {"Fn::GetAtt"}:
            target = node["Fn::GetAtt"]
            name, attribute = target.split(".", 1) if isinstance(target, str) else (target[0], ".".join(target[1:]))
            yield name, attribute
        else:
            if set(node) == {"Fn::Sub"}:
                yield from _sub_references(node["Fn::Sub"])
            for value in node.values():
                yield from references(value)


def _sub_references(value: Any) -> Iterator[tuple[str, str | None]]:
    text, own = (value[0], value[1]) if isinstance(value, list) else (value, {})
    for name in SUB_NAME.findall(text):
        if name not in own:
            target, _, attribute = name.partition(".")
            yield target, attribute or None


# ---------------------------------------------------------------- resolving


class Deployment:
    """A template with values for its parameters: conditions decided, resources that exist, branches of Fn::If
    chosen."""

    def __init__(self, template: dict[str, Any], values: dict[str, str] | None = None) -> None:
        self.template = template
        self.values = {name: str(one.get("Default", "")) for name, one in template["Parameters"].items()}
        self.values |= values or {}
        self.conditions: dict[str, bool] = {}
        for name in template["Conditions"]:
            self.condition(name)
        self.resources = self._existing("Resources")
        self.outputs = self._existing("Outputs")

    def _existing(self, section: str) -> dict[str, Any]:
        found = self.template.get(section, {})
        return {name: self.resolve(one) for name, one in found.items() if self._holds(one.get("Condition"))}

    def _holds(self, name: str | None) -> bool:
        return name is None or self.condition(name)

    def condition(self, name: str) -> bool:
        """Whether the condition of that name holds."""
        if name not in self.conditions:
            self.conditions[name] = self.decide(self.template["Conditions"][name])
        return self.conditions[name]

    def decide(self, node: dict[str, Any]) -> bool:
        """Whether an expression of a condition or a rule holds."""
        ((function, given),) = node.items()
        if function == "Condition":
            return self.condition(given)
        if function == "Fn::Equals":
            left, right = (self.resolve(side) for side in given)
            return str(left) == str(right)
        if function == "Fn::Not":
            return not self.decide(given[0])
        if function == "Fn::And":
            return all(self.decide(one) for one in given)
        if function == "Fn::Or":
            return any(self.decide(one) for one in given)
        raise ValueError(f"{function} in a condition")

    def resolve(self, node: Any) -> Any:
        """The node with everything put in that is known before the deployment. References to resources stay."""
        if isinstance(node, list):
            values = [self.resolve(value) for value in node]
            return [value for value in values if value != NO_VALUE]
        if not isinstance(node, dict):
            return node
        if len(node) == 1:
            ((function, given),) = node.items()
            if function == "Ref" or function.startswith("Fn::"):
                return self._function(function, given)
        values = {key: self.resolve(value) for key, value in node.items()}
        return {key: value for key, value in values.items() if value != NO_VALUE}

    def _function(self, function: str, given: Any) -> Any:
        if function == "Ref":
            return self.values.get(given, PSEUDO.get(given, {"Ref": given}))
        if function == "Fn::If":
            return self.resolve(given[1] if self.condition(given[0]) else given[2])
        if function == "Fn::FindInMap":
            mapping, first, second = (self.resolve(key) for key in given)
            return self.template["Mappings"][mapping][first][second]
        if function == "Fn::Split":
            return self.resolve(given[1]).split(given[0])
        if function == "Fn::Sub" and isinstance(given, str):
            return self._sub(given)
        return {function: self.resolve(given)}

    def _sub(self, text: str) -> Any:
        known = self.values | PSEUDO
        filled = SUB_NAME.sub(lambda found: str(known.get(found[1], found[0])), text)
        return {"Fn::Sub": filled} if SUB_NAME.search(filled) else filled


# ---------------------------------------------------------------- what resource types are


def schema_folder() -> Path:
    """Where the resource schemas lie that CloudFormation publishes. cfn-lint, one of the tools, brings them along.

    Raises FileNotFoundError if neither the tools' virtual environment nor this one has cfn-lint.
    """
    for folder in TOOLS.glob("lib/python*/site-packages/cfnlint/data/schemas"):
        return folder
    if found := importlib.util.find_spec("cfnlint"):
        return Path(str(found.origin)).parent / "data" / "schemas"
    raise FileNotFoundError(f"no resource schemas: {TOOLS} has no cfn-lint. LEASEHOLD_TOOLS can name another place")


@functools.cache
def schema(kind: str, region: str = "us-east-1") -> dict[str, Any] | None:
    """The schema of a resource type; none for an unknown type."""
    folder = schema_folder()
    types = json.loads((folder / "providers" / f"{region}.json").read_text(encoding="utf-8"))
    if kind not in types:
        return None
    return json.loads((folder / "resources" / f"{types[kind]}.json").read_text(encoding="utf-8"))


# Not read-only in the schema, as a template may set it; yet GetAtt gives it: "AWS::SQS::Queue", return values.
MORE_ATTRIBUTES = {"AWS::SQS::Queue": {"QueueName"}}


def attributes(kind: str) -> set[str]:
    """What Fn::GetAtt may ask of this type."""
    found = schema(kind) or {}
    paths = {path.removeprefix("/properties/").replace("/", ".") for path in found.get("readOnlyProperties", [])}
    return paths | MORE_ATTRIBUTES.get(kind, set())
