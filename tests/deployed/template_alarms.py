"""Checks of functions, logs, metrics and alarms: that they name each other rightly, and name what the code really
writes.

A check returns sentences about what is wrong; an empty list is praise.
"""

import re
from typing import Any

from template import ROOT, Deployment, Template
from template_references import IMAGE

# Metrics without an alarm: for dashboards.
ONLY_FOR_DASHBOARDS = {"ActiveSessions"}
# Where the lines of a log group are written.
WRITERS = {
    "DesiredStateLogs": ("functions/desired-state/src", "src"),
    "ReconcileLogs": ("functions/reconcile/src", "src"),
    "WorkerLogs": ("worker/src", "src"),
}
# LogLevel allows nothing quieter than info.
HEARD = {"info", "warn", "error"}
EVENT = r'\$\.event = "([a-z_]+)"'
# One event, or any of several.
EVENT_PATTERN = re.compile(rf"^\{{ (?:{EVENT}|\({EVENT}\)(?: \|\| \({EVENT}\))+) \}}$")


def alarms_of(template: Template) -> dict[str, dict[str, Any]]:
    """The alarms, with everything that can exist."""
    resources = Deployment(template.deployed, {"WorkerImage": IMAGE}).resources
    return {name: one["Properties"] for name, one in resources.items() if one["Type"] == "AWS::CloudWatch::Alarm"}


def metrics_of(alarm: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """What an alarm looks at: (namespace, metric, dimensions)."""
    looked_at = [one["MetricStat"]["Metric"] for one in alarm.get("Metrics", []) if "MetricStat" in one] or [alarm]
    found = []
    for one in looked_at:
        dimensions = {dimension["Name"]: dimension["Value"] for dimension in one.get("Dimensions", [])}
        found.append((one["Namespace"], one["MetricName"], dimensions))
    return found


# ---------------------------------------------------------------- functions and logs


def wrong_functions(template: Template) -> list[str]:
    """Each function is traced, writes to a log group of its own, and may do that."""
    wrong = []
    functions = template.of_type("AWS::Lambda::Function")
    groups = template.of_type("AWS::Logs::LogGroup")
    for name, one in functions.items():
        function = one["Properties"]
        group = function.get("LoggingConfig", {}).get("LogGroup", {}).get("Ref")
        role = function["Role"]["Fn::GetAtt"][0]
        if group != name.removesuffix("Function") + "Logs" or group not in groups:
            wrong.append(f"{name} writes to {group}")
        if role != name.removesuffix("Function") + "Role":
            wrong.append(f"{name} has the role {role}")
        if function.get("TracingConfig") != {"Mode": "Active"}:
            wrong.append(f"{name} is not traced")
        if (function.get("Runtime"), function.get("Handler")) != ("provided.al2023", "bootstrap"):
            wrong.append(f"{name} runs on {function.get('Runtime')}")
        statements = template.deployed["Resources"][role]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"]
        if not any(
            one["Resource"] == {"Fn::GetAtt": [group, "Arn"]} and "logs:PutLogEvents" in one["Action"]
            for one in statements
        ):
            wrong.append(f"{role} may not write to {group}")
    for name, one in groups.items():
        for field in ("RetentionInDays", "KmsKeyId"):
            if field not in one["Properties"]:
                wrong.append(f"{name} has no {field}")
    return wrong


# ---------------------------------------------------------------- alarms

# "Types of metrics for Lambda functions", "Available CloudWatch metrics for Amazon SQS", "DynamoDB metrics and
# dimensions", "Amazon ECS CloudWatch metrics": those of them that we use.
KNOWN_METRICS = {
    "AWS/Lambda": {"Errors", "Throttles", "Invocations", "Duration", "IteratorAge"},
    "AWS/SQS": {"ApproximateAgeOfOldestMessage", "ApproximateNumberOfMessagesVisible"},
    "AWS/DynamoDB": {"ReadThrottleEvents", "WriteThrottleEvents"},
    "AWS/ECS": {"CPUUtilization", "MemoryUtilization"},
}
EXPECTED_DIMENSIONS = {
    "AWS/Lambda": ({"FunctionName"},),
    "AWS/SQS": ({"QueueName"},),
    "AWS/DynamoDB": ({"TableName"}, {"TableName", "GlobalSecondaryIndexName"}),
    "AWS/ECS": ({"ClusterName", "ServiceName"},),
}


def wrong_dimensions(template: Template) -> list[str]:
    """An alarm on a metric that nobody writes never rings. Each names something that is there, as CloudWatch knows
    it."""
    wrong = []
    for name, alarm in alarms_of(template).items():
        for namespace, metric, dimensions in metrics_of(alarm):
            if namespace not in EXPECTED_DIMENSIONS:
                continue
            if metric not in KNOWN_METRICS[namespace]:
                wrong.append(f"{name}: {namespace} has no metric {metric}")
            if set(dimensions) not in EXPECTED_DIMENSIONS[namespace]:
                wrong.append(f"{name}: {namespace} has no metrics by {sorted(dimensions)}")
            for dimension, value in dimensions.items():
                if not _is_there(template, dimension, value, dimensions):
                    wrong.append(f"{name}: {dimension} is {value}")
    return wrong


def _is_there(template: Template, dimension: str, value: Any, all_of_it: dict[str, Any]) -> bool:
    """By which function a template gets the name of a resource, as a dimension has it: return values of the types."""
    resources = template.deployed["Resources"]
    if dimension == "GlobalSecondaryIndexName":
        table = resources[all_of_it["TableName"]["Ref"]]["Properties"]
        return value in [index["IndexName"] for index in table.get("GlobalSecondaryIndexes", [])]
    by_ref = {
        "FunctionName": "AWS::Lambda::Function",
        "TableName": "AWS::DynamoDB::GlobalTable",
        "ClusterName": "AWS::ECS::Cluster",
    }
    by_attribute = {"QueueName": ("AWS::SQS::Queue", "QueueName"), "ServiceName": ("AWS::ECS::Service", "Name")}
    if dimension in by_ref:
        return isinstance(value, dict) and resources.get(value.get("Ref"), {}).get("Type") == by_ref[dimension]
    kind, attribute = by_attribute[dimension]
    target = value.get("Fn::GetAtt", [None, None]) if isinstance(value, dict) else [None, None]
    return resources.get(target[0], {}).get("Type") == kind and target[1] == attribute


def unwatched(template: Template) -> list[str]:
    """Errors and throttles of each function, what lies in each queue of failures, throttles of each table with each
    index."""
    watched = []
    for alarm in alarms_of(template).values():
        watched += metrics_of(alarm)
    wanted: list[tuple[str, str, dict[str, Any]]] = []
    for name in template.of_type("AWS::Lambda::Function"):
        wanted += [("AWS/Lambda", metric, {"FunctionName": {"Ref": name}}) for metric in ("Errors", "Throttles")]
    for name in ("ClaimsDeadQueue", "FailedEventsQueue"):
        queue = {"QueueName": {"Fn::GetAtt": [name, "QueueName"]}}
        wanted.append(("AWS/SQS", "ApproximateNumberOfMessagesVisible", queue))
    for name, one in template.of_type("AWS::DynamoDB::GlobalTable").items():
        by_table = {"TableName": {"Ref": name}}
        parts = [by_table] + [
            by_table | {"GlobalSecondaryIndexName": index["IndexName"]}
            for index in one["Properties"].get("GlobalSecondaryIndexes", [])
        ]
        wanted += [
            ("AWS/DynamoDB", metric, part) for part in parts for metric in ("ReadThrottleEvents", "WriteThrottleEvents")
        ]
    return [f"no alarm looks at {one}" for one in wanted if one not in watched]


def wrong_alarms(template: Template) -> list[str]:
    """An alarm says what to do, what silence means, and can ring: every metric of an expression is in it, and the
    other way round."""
    wrong = []
    for name, alarm in alarms_of(template).items():
        if not name.endswith("Alarm"):
            wrong.append(f"{name} is not named as an alarm")
        if f"(docs/operations.md#{name.lower()})" not in alarm.get("AlarmDescription", ""):
            wrong.append(f"{name} does not name its section")
        if alarm.get("TreatMissingData") not in ("breaching", "notBreaching"):
            wrong.append(f"{name} does not say what silence means")
        if alarm["DatapointsToAlarm"] > alarm["EvaluationPeriods"]:
            wrong.append(f"{name} can never ring")
        # "PutMetricAlarm": periods together a day at most, and ten metrics in an expression.
        if alarm.get("Period", 60) * alarm["EvaluationPeriods"] > 86_400 or len(alarm.get("Metrics", [])) > 10:
            wrong.append(f"{name} looks at too much")
        wrong += [f"{name}: {sentence}" for sentence in _wrong_expression(alarm.get("Metrics", []))]
    return wrong


def _wrong_expression(metrics: list[dict[str, Any]]) -> list[str]:
    if not metrics:
        return []
    returned = [one for one in metrics if one.get("ReturnData")]
    if len(returned) != 1 or "Expression" not in returned[0]:
        return ["one expression is what it rings at"]
    named = set(re.findall(r"[a-z][a-z_]*", returned[0]["Expression"]))
    there = {one["Id"] for one in metrics if "MetricStat" in one}
    return [] if named == there else [f"the expression names {sorted(named)}, there are {sorted(there)}"]


# ---------------------------------------------------------------- metrics out of logs


def wrong_metrics(template: Template) -> list[str]:
    """What our code writes becomes a metric, and the metric an alarm."""
    made: dict[tuple[str, str], str] = {}
    wrong = []
    deployment = Deployment(template.deployed, {"WorkerImage": IMAGE})
    for name, one in deployment.resources.items():
        if one["Type"] == "AWS::Logs::MetricFilter":
            (metric,) = one["Properties"]["MetricTransformations"]
            made[metric["MetricNamespace"], metric["MetricName"]] = name
            wrong += [f"{name}: {sentence}" for sentence in _wrong_filter(one["Properties"], metric)]
    looked_at = set()
    for name, alarm in alarms_of(template).items():
        for namespace, metric, _ in metrics_of(alarm):
            looked_at.add((namespace, metric))
            if not namespace.startswith("AWS/") and (namespace, metric) not in made:
                wrong.append(f"{name} looks at {namespace} {metric}, which nobody writes")
    for (namespace, metric), name in made.items():
        if (namespace, metric) not in looked_at and metric not in ONLY_FOR_DASHBOARDS:
            wrong.append(f"{name}: no alarm looks at {metric}")
    return wrong


def _wrong_filter(properties: dict[str, Any], metric: dict[str, Any]) -> list[str]:
    group = properties["LogGroupName"].get("Ref")
    pattern = properties["FilterPattern"]
    if group not in WRITERS or not EVENT_PATTERN.match(pattern):
        return [f"reads {pattern} of {group}"]
    return [fault for event in re.findall(EVENT, pattern) for fault in _wrong_event(event, group, metric)]


def _wrong_event(event: str, group: str, metric: dict[str, Any]) -> list[str]:
    """What is wrong with reading this event."""
    lines = lines_written(event, WRITERS[group])
    if not lines:
        return [f"nobody writes the event {event} to {group}"]
    wrong = [f"{event} is written at level {level}" for level, _ in lines if level not in HEARD]
    value = str(metric["MetricValue"])
    if value.startswith("$."):
        field = value.removeprefix("$.")
        wrong += [f"{event} has no field {field}" for _, fields in lines if not re.search(rf"\b{field} = ", fields)]
    elif not value.isdigit():
        wrong.append(f"the value is {value}")
    return wrong


def lines_written(event: str, folders: tuple[str, ...]) -> list[tuple[str, str]]:
    """Where the code logs this event: (level, the rest of the call)."""
    call = re.compile(rf'tracing::(\w+)!\(\s*event = "{event}"(.*?)\);', re.DOTALL)
    found: list[tuple[str, str]] = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.rs")):
            found += call.findall(path.read_text(encoding="utf-8"))
    return found
