"""Checks of the template against its surroundings: settings of the processes, samconfig.toml, documents, suppressed
findings.

A check returns sentences about what is wrong; an empty list is praise.
"""

import re
import tomllib
from typing import Any

from template import ROOT, Deployment, Template
from template_references import IMAGE

# Settings that are no parameters, and why.
NO_PARAMETERS = {
    "TASK_ARN": "ECS tells the worker",
    "HEALTH_ADDR": "the health check of the same container asks the default",
    "MEMORY_LIMIT_BYTES": "the size says it",
}
# Settings whose parameter allows less than the process, and why.
NARROWER = {
    "LOG_LEVEL": "the alarms read lines of level info",
    "SHUTDOWN_MS": "Fargate waits for 120 s",
}
# Names of tables and so on: what each process must be told.
NAMES = {
    "CONNECTIONS_TABLE": {"Ref": "ConnectionsTable"},
    "SESSIONS_TABLE": {"Ref": "SessionsTable"},
    "MESSAGES_TABLE": {"Ref": "MessagesTable"},
    "CLAIMS_QUEUE_URL": {"Ref": "ClaimsQueue"},
    "TICKS_QUEUE_URL": {"Ref": "TicksQueue"},
    "ECS_CLUSTER": {"Ref": "Cluster"},
    "ECS_SERVICE": {"Fn::GetAtt": ["WorkerService", "Name"]},
}
PROCESSES = ("worker", "desired-state", "reconcile")
# Read by every process though the table of the worker's settings has it.
ALSO_FUNCTIONS = {"LOG_LEVEL"}
# Set for processes, though no setting of ours: the SDK reads them.
OF_THE_SDK = {"AWS_REGION", "AWS_ENDPOINT_URL"}


def table_rows(document: str, heading: str) -> list[list[str]]:
    """Cells of the first table under a heading, without its head."""
    section = document.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def settings_document() -> str:
    """docs/settings.md."""
    return (ROOT / "docs/settings.md").read_text(encoding="utf-8")


def environments(template: Template) -> dict[str, dict[str, Any]]:
    """What each process is told."""
    resources = Deployment(template.deployed, {"WorkerImage": IMAGE}).resources
    # Parameters stay references here: a value could be right by chance.
    (container,) = template.raw["Resources"]["WorkerTask"]["Properties"]["ContainerDefinitions"]
    found = {"worker": {one["Name"]: one["Value"] for one in container["Environment"]}}
    for process, name in (("desired-state", "DesiredStateFunction"), ("reconcile", "ReconcileFunction")):
        written = template.deployed["Resources"][name]["Properties"]["Environment"]["Variables"]
        resolved = resources[name]["Properties"]["Environment"]["Variables"]
        found[process] = {key: resolved.get(key) if "Fn::If" in value else value for key, value in written.items()}
    return found


def parameter_of(setting: str) -> str:
    """LEASE_MS is LeaseMs."""
    return "".join(word.capitalize() for word in setting.split("_"))


def wrong_names(template: Template) -> list[str]:
    """Tables, queues and the service, as the first table of docs/settings.md says which process must be told which."""
    wrong = []
    told = environments(template)
    for cells in table_rows(settings_document(), "Worker and functions"):
        for setting in re.findall(r"`([A-Z_]+)`", cells[0]):
            for process, cell in zip(PROCESSES, cells[1:4], strict=True):
                expected = NAMES.get(setting) if cell else None
                if told[process].get(setting) != expected:
                    wrong.append(f"{process} is told {setting} = {told[process].get(setting)}, not {expected}")
    return wrong


def wrong_settings(template: Template) -> list[str]:
    """Every setting of docs/settings.md is a parameter with the same default and bounds, and reaches every process
    that reads it."""
    wrong = []
    told = environments(template)
    document = settings_document()
    protocol = [
        (cells[0].strip("`"), cells[1].strip("`"), "1 to 86400000" if cells[1].isdigit() else cells[3])
        for cells in table_rows(document, "The protocol's numbers")
    ]
    of_worker = [(cells[0].strip("`"), cells[1].strip("`"), cells[2]) for cells in table_rows(document, "Worker only")]
    if len(protocol) < 14 or len(of_worker) < 19:
        wrong.append("docs/settings.md has lost a table")
    for setting, default, bounds in protocol + of_worker:
        if setting in NO_PARAMETERS:
            continue
        parameter = template.raw["Parameters"].get(parameter_of(setting))
        if parameter is None:
            wrong.append(f"{setting} is no parameter")
            continue
        if str(parameter["Default"]) != default:
            wrong.append(f"{setting} is {default} by default, the parameter {parameter['Default']}")
        wrong += [f"{setting}: {sentence}" for sentence in _wrong_bounds(setting, parameter, bounds)]
        everywhere = (setting, default, bounds) in protocol or setting in ALSO_FUNCTIONS
        for process in PROCESSES if everywhere else ("worker",):
            if told[process].get(setting) != {"Ref": parameter_of(setting)}:
                wrong.append(f"{process} is told {setting} = {told[process].get(setting)}")
    known = {setting for setting, _, _ in protocol + of_worker} | set(NAMES) | OF_THE_SDK
    for process, variables in told.items():
        wrong += [f"{process} is told {name}, which it does not read" for name in variables if name not in known]
    if told["worker"].get("MEMORY_LIMIT_BYTES") != {"Fn::FindInMap": ["Sizes", {"Ref": "WorkerSize"}, "MemoryBytes"]}:
        wrong.append("the worker is told another memory than it has")
    wrong += [
        f"{setting} is set, though {NO_PARAMETERS[setting]}"
        for setting in ("TASK_ARN", "HEALTH_ADDR")
        if setting in told["worker"]
    ]
    return wrong


def _wrong_bounds(setting: str, parameter: dict[str, Any], bounds: str) -> list[str]:
    if " to " not in bounds:
        words = re.findall(r"`([a-z]+)`", bounds)
        allowed = parameter.get("AllowedValues", [])
        same = allowed == words or (setting in NARROWER and set(allowed) < set(words))
        return [] if same and allowed else [f"{allowed} are allowed, the process takes {words}"]
    lowest, highest = (_number(text) for text in bounds.split(" to "))
    found = (parameter.get("MinValue"), parameter.get("MaxValue"))
    if found == (lowest, highest):
        return []
    if setting in NARROWER and None not in found and lowest <= found[0] <= found[1] <= highest:
        return []
    return [f"{found} are the bounds, the process has {(lowest, highest)}"]


def _number(text: str) -> int:
    base, _, power = text.partition("^")
    return int(base) ** int(power) if power else int(base)


# ---------------------------------------------------------------- parameters


def wrong_parameters(template: Template) -> list[str]:
    """Each has a default that it allows, and a place in the console's form. Limits: "AWS CloudFormation quotas"."""
    wrong = []
    parameters = template.raw["Parameters"]
    for name, one in parameters.items():
        if "Default" not in one:
            wrong.append(f"{name} must be given")
        else:
            wrong += [f"the default of {name}: {sentence}" for sentence in _refused(one, str(one["Default"]))]
        if "AllowedValues" in one and any(isinstance(value, bool) for value in one["AllowedValues"]):
            wrong.append(f"{name} allows YAML booleans: they are strings for CloudFormation")
    groups = template.raw["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    listed = [name for group in groups for name in group["Parameters"]]
    if sorted(listed) != sorted(parameters):
        wrong.append(f"the form lists others: {sorted(set(listed) ^ set(parameters))}, or one twice")
    if len(parameters) > 200 or len(template.deployed["Resources"]) > 500 or len(template.text) > 1_000_000:
        wrong.append("CloudFormation allows no template of this size")
    return wrong


def _refused(parameter: dict[str, Any], value: str) -> list[str]:
    """Why CloudFormation would not take the value."""
    allowed = parameter.get("AllowedValues")
    if allowed and value not in [str(one) for one in allowed]:
        return [f"{value!r} is not allowed"]
    if "AllowedPattern" in parameter and not re.fullmatch(parameter["AllowedPattern"], value):
        return [f"{value!r} does not match {parameter['AllowedPattern']}"]
    if parameter["Type"] == "Number":
        if not re.fullmatch(r"-?\d+", value):
            return [f"{value!r} is no number"]
        if not parameter.get("MinValue", int(value)) <= int(value) <= parameter.get("MaxValue", int(value)):
            return [f"{value} is out of bounds"]
    return []


def wrong_samconfig(template: Template, text: str) -> list[str]:
    """samconfig.toml names parameters that exist, with values that they allow, and asks for no more than the template
    needs."""
    wrong = []
    config = tomllib.loads(text)
    for environment in ("default", "dev", "prod"):
        deploy = config.get(environment, {}).get("deploy", {}).get("parameters", {})
        if deploy.get("capabilities") != "CAPABILITY_IAM":
            wrong.append(f"{environment}: the template makes roles without names, which CAPABILITY_IAM allows")
        overrides = dict(pair.split("=", 1) for pair in deploy.get("parameter_overrides", "").split())
        for name, value in overrides.items():
            if name not in template.raw["Parameters"]:
                wrong.append(f"{environment}: there is no parameter {name}")
            else:
                wrong += [
                    f"{environment}, {name}: {sentence}"
                    for sentence in _refused(template.raw["Parameters"][name], value)
                ]
    names = [
        config.get(one, {}).get("deploy", {}).get("parameters", {}).get("stack_name")
        for one in config
        if one != "version"
    ]
    if len(set(names)) != len(names):
        wrong.append(f"environments share a stack: {names}")
    return wrong


# ---------------------------------------------------------------- documents


def undocumented(template: Template, deploy: str, operations: str) -> list[str]:
    """docs/deploy.md names every parameter, docs/operations.md has a section of each alarm's name, and of no other
    alarm."""
    wrong = [f"docs/deploy.md does not name {name}" for name in template.raw["Parameters"] if f"`{name}`" not in deploy]
    sections = set(re.findall(r"^#+ `?(\w+Alarm)`?\s*$", operations, re.MULTILINE))
    alarms = set(template.of_type("AWS::CloudWatch::Alarm"))
    wrong += [f"docs/operations.md has no section {name}" for name in sorted(alarms - sections)]
    return wrong + [
        f"docs/operations.md has a section {name}: there is no such alarm" for name in sorted(sections - alarms)
    ]


def suppressed_without_a_reason(text: str) -> list[str]:
    """A suppressed finding has a comment above it that says why."""
    lines = [line.strip() for line in text.splitlines()]
    wrong = []
    for index, line in enumerate(lines):
        if not line.startswith("ignore_checks:"):
            continue
        if line == "ignore_checks:":
            if not lines[index + 1].startswith("#"):
                wrong.append(f"line {index + 2}: {lines[index + 1]} is ignored without a reason")
        elif not lines[index - 1].startswith("#"):
            wrong.append(f"line {index + 1}: {line} without a reason")
    return wrong
