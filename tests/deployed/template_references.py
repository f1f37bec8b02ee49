"""Checks of references: nothing dangles, nothing is unused, nothing waits for itself, in no combination of parameters.

A check returns sentences about what is wrong; an empty list is praise.
"""

import itertools
from typing import Any

from template import PSEUDO, Deployment, Template, attributes, references, schema, walk

# Groups that a template has names for. A name must not mean two things.
NAMED = ("Parameters", "Resources")
CONDITION_FUNCTIONS = ("Fn::If", "Condition")


def dangling(document: dict[str, Any]) -> list[str]:
    """Ref, GetAtt, Sub, DependsOn, FindInMap and conditions that name nothing, and attributes that their types do not
    have."""
    wrong = []
    resources = document["Resources"]
    for section in ("Conditions", "Rules", "Resources", "Outputs"):
        for name, one in document.get(section, {}).items():
            where = f"{section}.{name}"
            for target, attribute in references(one):
                wrong += _wrong_reference(document, where, target, attribute)
            wrong += _wrong_names(document, where, one)
    for name, one in resources.items():
        for target in depends_on(one):
            if target not in resources:
                wrong.append(f"Resources.{name} depends on {target}, which does not exist")
    return wrong


def _wrong_reference(document: dict[str, Any], where: str, target: str, attribute: str | None) -> list[str]:
    resources = document["Resources"]
    if attribute is None:
        known = target in resources or target in document["Parameters"] or target in PSEUDO or target == "AWS::NoValue"
        return [] if known else [f"{where} names {target}, which does not exist"]
    if target not in resources:
        return [f"{where} asks {target}.{attribute}: there is no such resource"]
    kind = resources[target]["Type"]
    if kind.startswith("AWS::Serverless::"):
        kind = kind.replace("Serverless", "Lambda")
    if attribute not in attributes(kind):
        return [f"{where} asks {target}.{attribute}: {kind} has {sorted(attributes(kind))}"]
    return []


def _wrong_names(document: dict[str, Any], where: str, one: Any) -> list[str]:
    wrong = []
    for condition in conditions_named(one):
        if condition not in document["Conditions"]:
            wrong.append(f"{where} has the condition {condition}, which does not exist")
    for _, node in walk(one):
        if isinstance(node, dict) and "Fn::FindInMap" in node:
            wrong += _wrong_map(document, where, node["Fn::FindInMap"])
    return wrong


def _wrong_map(document: dict[str, Any], where: str, keys: list[Any]) -> list[str]:
    mapping, first, second = keys
    rows = document.get("Mappings", {}).get(mapping, {})
    wanted = [first]
    if isinstance(first, dict):
        wanted = document["Parameters"][first["Ref"]].get("AllowedValues", [None])
    missing = [key for key in wanted if second not in rows.get(key, {})]
    return [f"{where}: the mapping {mapping} has nothing at {key}.{second}" for key in missing]


def conditions_named(one: Any) -> list[str]:
    """Conditions by which a resource, an output, or a part of one exists. (An IAM statement has a map there, no
    name.)"""
    named = []
    for _, node in walk(one):
        if not isinstance(node, dict):
            continue
        if "Fn::If" in node:
            named.append(node["Fn::If"][0])
        if isinstance(node.get("Condition"), str):
            named.append(node["Condition"])
    return named


def unknown_types(document: dict[str, Any]) -> list[str]:
    """Resource types that CloudFormation does not have."""
    kinds = {one["Type"] for one in document["Resources"].values() if not one["Type"].startswith("AWS::Serverless::")}
    return [f"no such type: {kind}" for kind in sorted(kinds) if schema(kind) is None]


def unused(document: dict[str, Any]) -> list[str]:
    """Parameters, conditions and mappings that nothing needs."""
    body = [document.get(section, {}) for section in ("Conditions", "Globals", "Resources", "Outputs")]
    named = {target for target, _ in references(body)}
    conditions = set(conditions_named(body))
    maps = {node["Fn::FindInMap"][0] for _, node in walk(body) if isinstance(node, dict) and "Fn::FindInMap" in node}
    wrong = [f"nothing reads the parameter {name}" for name in document["Parameters"] if name not in named]
    wrong += [f"nothing asks the condition {name}" for name in document["Conditions"] if name not in conditions]
    return wrong + [
        f"nothing looks into the mapping {name}" for name in document.get("Mappings", {}) if name not in maps
    ]


def twice_named(document: dict[str, Any]) -> list[str]:
    """Logical names of parameters and resources must differ: "Template anatomy"."""
    both = set(document["Parameters"]) & set(document["Resources"])
    return [f"{name} is a parameter and a resource" for name in sorted(both)]


def depends_on(one: dict[str, Any]) -> list[str]:
    """The attribute DependsOn as a list."""
    named = one.get("DependsOn", [])
    return [named] if isinstance(named, str) else named


def needs(document: dict[str, Any]) -> dict[str, set[str]]:
    """Which resource must be there before which."""
    resources = document["Resources"]
    graph = {}
    for name, one in resources.items():
        named = {target for target, _ in references(one) if target in resources}
        graph[name] = named | set(depends_on(one))
    return graph


def circles(document: dict[str, Any]) -> list[str]:
    """Resources that wait for themselves."""
    graph = needs(document)
    wrong = []
    for name in graph:
        if name in needed_by(graph, name):
            wrong.append(f"{name} waits for itself, by {sorted(graph[name])}")
    return wrong


def needed_by(graph: dict[str, set[str]], name: str) -> set[str]:
    """All that must be there before `name`, however far away."""
    seen: set[str] = set()
    waiting = list(graph.get(name, ()))
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            waiting += graph.get(one, ())
    return seen


# ---------------------------------------------------------------- combinations

IMAGE = "123456789012.dkr.ecr.eu-central-1.amazonaws.com/worker:1"
GIVEN_KEY = "arn:aws:kms:eu-central-1:123456789012:key/given"
GIVEN_TOPIC = "arn:aws:sns:eu-central-1:123456789012:alarms"

NETWORKS = (
    {"Network": "public"},
    {"Network": "fixed-address"},
    {"Network": "existing", "SubnetIds": "subnet-1,subnet-2", "SecurityGroupIds": "sg-1"},
    {"Network": "existing", "SubnetIds": "subnet-1", "VpcId": "vpc-1", "AssignPublicIp": "ENABLED"},
)
CHOICES = (
    ({}, {"WorkerImage": IMAGE}),
    NETWORKS,
    ({}, {"KmsKeyArn": GIVEN_KEY}),
    ({}, {"Billing": "PROVISIONED"}),
    ({"AlarmTopicArn": GIVEN_TOPIC}, {"ReconcileReservedConcurrency": "3", "AwsEndpointUrl": "http://10.0.0.1:4566"}),
    ({}, {"Spot": "true", "Architecture": "arm64", "EcsEvents": "false", "WorkerSize": "small"}),
    ({}, {"VpcEndpoints": "true", "EgressToPort": "9000"}),
)


def combinations() -> list[dict[str, str]]:
    """Values of parameters: each choice with each other."""
    return [dict(itertools.chain(*(choice.items() for choice in chosen))) for chosen in itertools.product(*CHOICES)]


def missing_in(deployment: Deployment) -> list[str]:
    """References of what exists to what does not, for these parameters."""
    wrong = []
    for section in (deployment.resources, deployment.outputs):
        for name, one in section.items():
            for target, _ in references(one):
                if target not in deployment.resources:
                    wrong.append(f"{name} needs {target}, which does not exist then")
    return wrong


def missing_in_combinations(template: Template) -> list[str]:
    """The same, for all combinations."""
    wrong = []
    for values in combinations():
        wrong += [f"{sentence}: {values}" for sentence in missing_in(Deployment(template.deployed, values))]
    return wrong


# ---------------------------------------------------------------- order


def routes_that_come_late(template: Template) -> list[str]:
    """A task that starts before its subnet has a way out cannot fetch its image; one that still drains needs it as
    well. So the service waits for the routes and for their associations with its subnets."""
    graph = needs(template.deployed)
    wrong = []
    for network in NETWORKS[:2]:
        deployment = Deployment(template.deployed, {"WorkerImage": IMAGE} | network)
        service = deployment.resources["WorkerService"]["Properties"]
        subnets = [one["Ref"] for one in service["NetworkConfiguration"]["AwsvpcConfiguration"]["Subnets"]]
        before = needed_by(graph, "WorkerService")
        way_out = _way_out(deployment, subnets)
        if len(way_out) <= len(subnets):
            wrong.append(f"no route leads out of {subnets} ({network['Network']})")
        for name in way_out:
            if name not in before:
                wrong.append(f"WorkerService does not wait for {name} ({network['Network']})")
    return wrong


def _way_out(deployment: Deployment, subnets: list[str]) -> list[str]:
    links, tables = [], set()
    for name, one in deployment.resources.items():
        if one["Type"] == "AWS::EC2::SubnetRouteTableAssociation" and one["Properties"]["SubnetId"]["Ref"] in subnets:
            links.append(name)
            tables.add(one["Properties"]["RouteTableId"]["Ref"])
    for name, one in deployment.resources.items():
        if one["Type"] == "AWS::EC2::Route" and one["Properties"]["RouteTableId"]["Ref"] in tables:
            links.append(name)
    return links
