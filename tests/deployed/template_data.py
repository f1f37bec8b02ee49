"""Checks of tables, queues, and of what feeds the functions.

A check returns sentences about what is wrong; an empty list is praise. A comment names the public source of a rule.
"""

import json
import re
from typing import Any

from template import ROOT, Deployment, Template
from template_references import IMAGE

# ---------------------------------------------------------------- tables

# src/model: which table has which stream, time to live and backup. Sessions are over within hours, and are never
# restored.
STREAMS = {"ConnectionsTable": "NEW_AND_OLD_IMAGES"}
TIMES_TO_LIVE = {"MessagesTable": ("src/model/message.rs", "EXPIRES_AT")}
BACKED_UP = {"ConnectionsTable", "MessagesTable"}


def constant(path: str, name: str) -> str:
    """The value of a string constant in our Rust code."""
    found = re.search(rf'pub const {name}: &str = "([^"]+)";', (ROOT / path).read_text(encoding="utf-8"))
    assert found, f"{path} has no constant {name}"
    return found[1]


def wrong_tables(template: Template) -> list[str]:
    """Keys, stream, time to live, backups and encryption of the tables."""
    wrong = []
    for name, one in Deployment(template.deployed, {"WorkerImage": IMAGE}).resources.items():
        if one["Type"] != "AWS::DynamoDB::GlobalTable":
            continue
        table = one["Properties"]
        (replica,) = table["Replicas"]
        if table.get("StreamSpecification", {}).get("StreamViewType") != STREAMS.get(name):
            wrong.append(f"{name}: the stream must be {STREAMS.get(name)}")
        if table.get("TimeToLiveSpecification") != _time_to_live(name):
            wrong.append(f"{name}: the time to live must be {_time_to_live(name)}")
        backed_up = replica.get("PointInTimeRecoverySpecification", {}).get("PointInTimeRecoveryEnabled") == "true"
        if backed_up != (name in BACKED_UP):
            wrong.append(f"{name}: point-in-time recovery is {backed_up}")
        if name in BACKED_UP and one.get("DeletionPolicy") != "RetainExceptOnCreate":
            wrong.append(f"{name}: removing the stack would remove it")
        if table.get("SSESpecification") != {"SSEEnabled": True, "SSEType": "KMS"} or "SSESpecification" not in replica:
            wrong.append(f"{name} is not encrypted with the key")
        wrong += [f"{name}: {sentence}" for sentence in _wrong_keys(table)]
    return wrong


def _time_to_live(name: str) -> dict[str, Any] | None:
    if name not in TIMES_TO_LIVE:
        return None
    return {"AttributeName": constant(*TIMES_TO_LIVE[name]), "Enabled": True}


def _wrong_keys(table: dict[str, Any]) -> list[str]:
    """DynamoDB refuses attributes that no key uses, and keys without a definition: "CreateTable"."""
    keys = {key["AttributeName"] for key in table["KeySchema"]}
    for index in table.get("GlobalSecondaryIndexes", []):
        keys |= {key["AttributeName"] for key in index["KeySchema"]}
    defined = {one["AttributeName"] for one in table["AttributeDefinitions"]}
    return [] if keys == defined else [f"keys use {sorted(keys)}, defined are {sorted(defined)}"]


def wrong_indexes(template: Template) -> list[str]:
    """The indexes are those that src/aws/connections.rs queries, with what it reads of them."""
    attr = {
        name: constant("src/model/connection.rs", name)
        for name in ("DESIRED_STATE", "LEASE_EXPIRES_AT_MS", "LEASE_OWNER", "LEASE_EPOCH")
    }
    wanted = {
        constant("src/model/connection.rs", "INDEX_BY_EXPIRY"): (
            [(attr["DESIRED_STATE"], "HASH"), (attr["LEASE_EXPIRES_AT_MS"], "RANGE")],
            {"ProjectionType": "KEYS_ONLY"},
        ),
        constant("src/model/connection.rs", "INDEX_BY_OWNER"): (
            [(attr["LEASE_OWNER"], "HASH")],
            {"ProjectionType": "INCLUDE", "NonKeyAttributes": [attr["LEASE_EPOCH"], attr["DESIRED_STATE"]]},
        ),
    }
    table = template.raw["Resources"]["ConnectionsTable"]["Properties"]
    found = {}
    for index in table["GlobalSecondaryIndexes"]:
        keys = [(key["AttributeName"], key["KeyType"]) for key in index["KeySchema"]]
        found[index["IndexName"]] = (keys, index["Projection"])
    return [] if found == wanted else [f"indexes are {found}, the code expects {wanted}"]


def wrong_billing(template: Template) -> list[str]:
    """Provisioned tables scale, each with each index, reads and writes; others say nothing of it.

    SeedCapacity must be given for a table that changes from PAY_PER_REQUEST to PROVISIONED: "AWS::DynamoDB::GlobalTable
    CapacityAutoScalingSettings".
    """
    wrong = []
    for billing in ("PAY_PER_REQUEST", "PROVISIONED"):
        deployment = Deployment(template.deployed, {"Billing": billing})
        for name, one in deployment.resources.items():
            if one["Type"] == "AWS::DynamoDB::GlobalTable":
                wrong += [f"{name}, {billing}: {sentence}" for sentence in _wrong_capacity(one["Properties"], billing)]
    return wrong


def _wrong_capacity(table: dict[str, Any], billing: str) -> list[str]:
    (replica,) = table["Replicas"]
    parts = [(table, "Write"), (replica, "Read")]
    parts += [(index, "Write") for index in table.get("GlobalSecondaryIndexes", [])]
    parts += [(index, "Read") for index in replica.get("GlobalSecondaryIndexes", [])]
    if len(table.get("GlobalSecondaryIndexes", [])) != len(replica.get("GlobalSecondaryIndexes", [])):
        return ["the replica has other indexes"]
    if billing == "PAY_PER_REQUEST":
        return [f"{kind} units are set" for part, kind in parts if f"{kind}ProvisionedThroughputSettings" in part]
    wrong = []
    for part, kind in parts:
        settings = part.get(f"{kind}ProvisionedThroughputSettings", {}).get(f"{kind}CapacityAutoScalingSettings", {})
        for field in ("MinCapacity", "MaxCapacity", "SeedCapacity", "TargetTrackingScalingPolicyConfiguration"):
            if field not in settings:
                wrong.append(f"{kind} units of {part.get('IndexName', 'the table')} have no {field}")
    return wrong


# ---------------------------------------------------------------- queues

# Where messages end. Nothing comes after them, but an alarm.
LAST_QUEUES = {"ClaimsDeadQueue", "FailedEventsQueue"}
# A tick that failed is worth nothing once the next one is sent.
WITHOUT_DEAD_LETTERS = LAST_QUEUES | {"TicksQueue"}
# SQS keeps messages for four days where nothing is said: "SetQueueAttributes". Nothing of ours relies on that.


def wrong_queues(template: Template) -> list[str]:
    """Encryption, retention, dead letters."""
    queues = {name: one["Properties"] for name, one in template.of_type("AWS::SQS::Queue").items()}
    wrong = []
    for name, queue in queues.items():
        if "KmsMasterKeyId" not in queue:
            wrong.append(f"{name} is not encrypted with the key")
        if "MessageRetentionPeriod" not in queue:
            wrong.append(f"{name} has no retention")
        target = queue.get("RedrivePolicy", {}).get("deadLetterTargetArn", {}).get("Fn::GetAtt", [None])[0]
        if name in WITHOUT_DEAD_LETTERS:
            if target:
                wrong.append(f"{name} has dead letters, and must not")
        elif target not in queues:
            wrong.append(f"{name} has no dead-letter queue")
        elif queues[target].get("MessageRetentionPeriod", 0) <= queue.get("MessageRetentionPeriod", 0):
            # A message keeps the date of its first sending: "Amazon SQS dead-letter queues", retention.
            wrong.append(f"{target} does not keep messages for longer than {name}")
    return wrong


def wrong_visibility(template: Template) -> list[str]:
    """Six times the function's time-out: "Configuring an Amazon SQS queue to use with Lambda". Lambda refuses less
    than once."""
    wrong = []
    for name, mapping in mappings_of(template, "AWS::SQS::Queue").items():
        queue = mapping["EventSourceArn"]["Fn::GetAtt"][0]
        function = mapping["FunctionName"]["Ref"]
        timeout = template.deployed["Resources"][function]["Properties"]["Timeout"]
        visible = template.deployed["Resources"][queue]["Properties"].get("VisibilityTimeout", 30)
        if visible < 6 * timeout:
            wrong.append(f"{name}: {queue} shows a message again after {visible} s, {function} may take {timeout} s")
    return wrong


# ---------------------------------------------------------------- triggers


def mappings_of(template: Template, kind: str) -> dict[str, dict[str, Any]]:
    """Event source mappings that read resources of this type: their properties."""
    found = {}
    for name, one in template.of_type("AWS::Lambda::EventSourceMapping").items():
        source = one["Properties"]["EventSourceArn"]["Fn::GetAtt"][0]
        if template.deployed["Resources"][source]["Type"] == kind:
            found[name] = one["Properties"]
    return found


def wrong_stream(template: Template) -> list[str]:
    """One bad record must not hold a shard up for a day, nor be lost without a word.

    By default Lambda tries a batch again until the records expire, and drops them then: solita/solita.github.com#376
    tells of such a case. TRIM_HORIZON, as records may be written before the mapping starts to poll: "Using Lambda
    with DynamoDB streams".
    """
    found = mappings_of(template, "AWS::DynamoDB::GlobalTable")
    if len(found) != 1:
        return [f"one mapping reads a stream, not {sorted(found)}"]
    (mapping,) = found.values()
    wrong = []
    if not 0 <= mapping.get("MaximumRetryAttempts", -1) <= 10:
        wrong.append("retries are not few")
    if not 60 <= mapping.get("MaximumRecordAgeInSeconds", -1) < 86_400:
        wrong.append("the age of records is not limited below the day that the stream keeps them")
    if mapping.get("BisectBatchOnFunctionError") is not True:
        wrong.append("a batch that fails is not cut in two")
    if mapping.get("FunctionResponseTypes") != ["ReportBatchItemFailures"]:
        wrong.append("failures of single records are not heard")
    if mapping.get("DestinationConfig", {}).get("OnFailure", {}).get("Destination") != {
        "Fn::GetAtt": ["FailedEventsQueue", "Arn"]
    }:
        wrong.append("what fails for good goes nowhere")
    if mapping.get("StartingPosition") != "TRIM_HORIZON":
        wrong.append("what was written before the first poll would be missed")
    return wrong


def wrong_filters(template: Template) -> list[str]:
    """The filter lets pass what the handler acts on. Five patterns are what Lambda allows without asking: "Lambda
    event filtering"."""
    wanted = json.loads((ROOT / "functions/desired-state/filter-patterns.json").read_text(encoding="utf-8"))
    (mapping,) = mappings_of(template, "AWS::DynamoDB::GlobalTable").values()
    found = [json.loads(one["Pattern"]) for one in mapping.get("FilterCriteria", {}).get("Filters", [])]
    wrong = [] if found == wanted else ["the patterns are not those of functions/desired-state/filter-patterns.json"]
    return wrong if len(found) <= 5 else [*wrong, f"{len(found)} patterns"]


def wrong_concurrency(template: Template) -> list[str]:
    """A mapping that may start more than the function's reserved concurrency has messages come back as received too
    often though nothing was wrong with them: seek-oss/skuba#1408, "Configuring maximum concurrency for Amazon SQS
    event sources"."""
    allowed = template.raw["Parameters"]["ReconcileReservedConcurrency"].get("AllowedValues")
    if not allowed:
        return ["any reserved concurrency may be given"]
    (mapping,) = mappings_of(template, "AWS::SQS::Queue").values()
    most = mapping.get("ScalingConfig", {}).get("MaximumConcurrency")
    if most is None or most < 2:
        return [f"the mapping's maximum concurrency is {most}, it must be at least 2"]
    wrong = []
    for value in allowed:
        function = Deployment(template.deployed, {"ReconcileReservedConcurrency": str(value)}).resources[
            "ReconcileFunction"
        ]
        reserved = function["Properties"].get("ReservedConcurrentExecutions")
        if value == 0 and reserved is not None:
            wrong.append("0 must reserve nothing: it would turn the function off")
        if reserved is not None and int(reserved) < most:
            wrong.append(f"the mapping starts {most}, reserved are {reserved}")
    return wrong
