"""Checks of permissions: roles, and the key's own policy.

A check returns sentences about what is wrong; an empty list is praise. A comment names the public source of a rule.
"""

import re
from typing import Any

from template import Deployment, Template
from template_references import GIVEN_KEY, IMAGE

STAR = {
    # X-Ray and the login of ECR have no resources, ListTasks has clusters as a condition only: "Service Authorization
    # Reference".
    ("DesiredStateRole", "Traces"): {"xray:PutTraceSegments", "xray:PutTelemetryRecords"},
    ("ReconcileRole", "Traces"): {"xray:PutTraceSegments", "xray:PutTelemetryRecords"},
    ("ReconcileRole", "Fleet"): {"ecs:ListTasks"},
    ("WorkerExecutionRole", "Registry"): {"ecr:GetAuthorizationToken"},
}


def as_list(value: Any) -> list[Any]:
    """IAM takes one of a thing for a list of one."""
    return value if isinstance(value, list) else [value]


def statements(template: Template) -> list[tuple[str, dict[str, Any]]]:
    """Statements of the roles' policies, with the role."""
    found = []
    for name, one in template.of_type("AWS::IAM::Role").items():
        for policy in one["Properties"].get("Policies", []):
            found += [(name, statement) for statement in policy["PolicyDocument"]["Statement"]]
    return found


def wrong_statements(template: Template) -> list[str]:
    """Every statement names its actions and resources; the few that cannot say why."""
    wrong = []
    for role, statement in statements(template):
        where = f"{role}, {statement.get('Sid')}"
        actions = as_list(statement.get("Action", "*"))
        if any("*" in action for action in actions) or "NotAction" in statement or "NotResource" in statement:
            wrong.append(f"{where} does not name its actions")
        if statement.get("Effect") != "Allow" or "Sid" not in statement:
            wrong.append(f"{where} has no name, or allows nothing")
        if "*" not in as_list(statement.get("Resource")):
            continue
        if not set(actions) <= STAR.get((role, statement.get("Sid")), set()):
            wrong.append(f"{where} is for any resource")
        if actions == ["ecs:ListTasks"] and statement.get("Condition") != {
            "ArnEquals": {"ecs:cluster": {"Fn::GetAtt": ["Cluster", "Arn"]}}
        }:
            wrong.append(f"{where} is for any cluster")
        if not _has_comment(template.text, role, statement.get("Sid")):
            wrong.append(f"{where} is for any resource, and does not say why")
    for name, one in template.of_type("AWS::IAM::Role").items():
        if one["Properties"].get("ManagedPolicyArns"):
            wrong.append(f"{name} has a policy that others write")
    return wrong


def _has_comment(text: str, role: str, sid: str | None) -> bool:
    lines = text.splitlines()
    if f"  {role}:" not in lines:
        return False
    start = lines.index(f"  {role}:")
    for index in range(start, len(lines)):
        if lines[index].strip() == f"- Sid: {sid}":
            return lines[index - 1].strip().startswith("#")
    return False


# Who sends to which queue, besides roles that may: Lambda sends what failed with the function's own role.
SENDERS = {
    "DesiredStateRole": {"ClaimsQueue", "FailedEventsQueue"},
    "ReconcileRole": {"ClaimsQueue", "TicksQueue"},
    "WorkerRole": {"ClaimsQueue"},
}


def wrong_senders(template: Template) -> list[str]:
    """Who sends to an encrypted queue needs GenerateDataKey and Decrypt of its key, else nothing arrives and nobody
    hears of it: aws/aws-cdk #11122, aws/serverless-application-model#1796."""
    wrong = []
    for values in ({"WorkerImage": IMAGE}, {"WorkerImage": IMAGE, "KmsKeyArn": GIVEN_KEY}):
        deployment = Deployment(template.deployed, values)
        key = values.get("KmsKeyArn", {"Fn::GetAtt": ["Key", "Arn"]})
        for role, queues in SENDERS.items():
            allowed = _allowed(deployment.resources[role])
            for action in ("kms:GenerateDataKey", "kms:Decrypt"):
                if key not in allowed.get(action, []):
                    wrong.append(f"{role} may not {action} with {key}")
            missing = [
                one for one in sorted(queues) if {"Fn::GetAtt": [one, "Arn"]} not in allowed.get("sqs:SendMessage", [])
            ]
            wrong += [f"{role} may not send to {queue}" for queue in missing]
        for name, one in deployment.resources.items():
            if one["Type"] == "AWS::SQS::Queue" and one["Properties"].get("KmsMasterKeyId") != key:
                wrong.append(f"{name} is not encrypted with {key}")
    return wrong


def _allowed(role: dict[str, Any]) -> dict[str, list[Any]]:
    """Resources by action."""
    found: dict[str, list[Any]] = {}
    for policy in role["Properties"]["Policies"]:
        for statement in policy["PolicyDocument"]["Statement"]:
            for action in as_list(statement["Action"]):
                found.setdefault(action, []).extend(as_list(statement["Resource"]))
    return found


def wrong_key_policy(template: Template) -> list[str]:
    """The account keeps the key, the logs of this stack may use it, and DynamoDB for callers of this account; nobody
    else."""
    policy = Deployment(template.deployed).resources["Key"]["Properties"]["KeyPolicy"]
    by_sid = {statement["Sid"]: statement for statement in policy["Statement"]}
    wrong = []
    if by_sid.get("TheAccountDecides", {}).get("Principal") != {"AWS": "arn:aws:iam::123456789012:root"}:
        wrong.append("nobody could change the key's policy any more")
    for statement in policy["Statement"]:
        if "*" in (statement["Principal"], as_list(statement["Principal"].get("AWS"))[0]):
            conditions = statement.get("Condition", {}).get("StringEquals", {})
            if conditions.get("kms:CallerAccount") != "123456789012" or "kms:ViaService" not in conditions:
                wrong.append(f"{statement['Sid']} is for everybody")
    logs = by_sid.get("Logs", {})
    groups = logs.get("Condition", {}).get("ArnLike", {}).get("kms:EncryptionContext:aws:logs:arn", "")
    if logs.get("Principal") != {"Service": "logs.eu-central-1.amazonaws.com"}:
        wrong.append("CloudWatch Logs may not use the key")
    for name, one in Deployment(template.deployed).resources.items():
        if one["Type"] == "AWS::Logs::LogGroup" and not _is_like(one["Properties"]["LogGroupName"], groups):
            wrong.append(f"the key is not for the log group {name}")
    return wrong


def _is_like(name: str, pattern: str) -> bool:
    arn = f"arn:aws:logs:eu-central-1:123456789012:log-group:{name}"
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), arn) is not None
