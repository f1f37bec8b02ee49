"""Each check of the template finds the fault that it is for: one small change at a time."""

import pytest
import yaml

import template_alarms as alarms
import template_data as data
import template_existence as existence
import template_permissions as permissions
import template_references as references
import template_settings as settings
import template_workers as workers
from template import MISSING, ROOT, Deployment, Loader, Template, read

WHOLE = read()

STREAM = ("Resources", "DesiredStateFunction", "Properties", "Events", "Connections", "Properties")
TICKS = ("Resources", "ReconcileFunction", "Properties", "Events", "Ticks", "Properties")
CONTAINER = ("Resources", "WorkerTask", "Properties", "ContainerDefinitions", 0)
SERVICE = ("Resources", "WorkerService", "Properties")
TABLE = ("Resources", "ConnectionsTable", "Properties")

# Which nothing that matters waits for.
LATE = {
    "Type": "AWS::EC2::SubnetRouteTableAssociation",
    "Condition": "HasOwnVpc",
    "Properties": {"SubnetId": {"Ref": "PublicSubnetA"}, "RouteTableId": {"Ref": "PublicRoutes"}},
}


def of(resource: str, *path: object) -> tuple[object, ...]:
    return ("Resources", resource, "Properties", *path)


def statement(role: str, sid: str, *path: object) -> tuple[object, ...]:
    found = WHOLE.raw["Resources"][role]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"]
    index = [one["Sid"] for one in found].index(sid)
    return of(role, "Policies", 0, "PolicyDocument", "Statement", index, *path)


# Of a document: (check, path, value, words of the sentence).
REFERENCES = [
    (references.dangling, of("ClaimsQueue", "KmsMasterKeyId"), {"Ref": "Keys"}, "names Keys"),
    (references.dangling, of("ClaimsQueue", "KmsMasterKeyId"), {"Fn::GetAtt": ["Key", "ARN"]}, "asks Key.ARN"),
    (references.dangling, of("WorkerRole", "Path"), {"Fn::Sub": "/${Nobody}/"}, "names Nobody"),
    (references.dangling, ("Resources", "Cluster", "Condition"), "HasNothing", "HasNothing"),
    (references.dangling, ("Resources", "Cluster", "DependsOn"), "Nobody", "depends on Nobody"),
    (references.dangling, ("Mappings", "Sizes", "small", "Cpu"), MISSING, "nothing at small.Cpu"),
    (references.unknown_types, ("Resources", "Cluster", "Type"), "AWS::ECS::Clusters", "no such type"),
    (references.unused, ("Parameters", "Forgotten"), {"Type": "String", "Default": ""}, "Forgotten"),
    (references.unused, ("Conditions", "Forgotten"), {"Fn::Equals": ["a", "b"]}, "Forgotten"),
    (references.unused, ("Mappings", "Forgotten"), {"a": {"b": "c"}}, "Forgotten"),
    (references.twice_named, ("Parameters", "Cluster"), {"Type": "String", "Default": ""}, "Cluster"),
    (references.circles, ("Resources", "Vpc", "DependsOn"), ["NatGateway"], "waits for itself"),
]


@pytest.mark.parametrize(("check", "path", "value", "words"), REFERENCES)
def test_a_reference_that_is_wrong_is_found(check, path, value, words) -> None:
    assert_found(check(WHOLE.changed(*path, to=value).raw), words)


# Of a template: the same.
PROMISES = [
    (references.missing_in_combinations, ("Resources", "NatGateway", "Condition"), MISSING, "NatGateway needs"),
    (
        references.missing_in_combinations,
        of("ReconcileFunction", "Environment", "Variables", "ECS_SERVICE"),
        {"Fn::GetAtt": ["WorkerService", "Name"]},
        "needs WorkerService",
    ),
    (existence.wrong_combinations, ("Conditions", "HasFixedAddress"), {"Fn::Equals": ["a", "b"]}, "NatGateway exists"),
    (
        existence.wrong_combinations,
        (*SERVICE, "NetworkConfiguration", "AwsvpcConfiguration", "AssignPublicIp"),
        "ENABLED",
        "network is",
    ),
    (
        existence.wrong_combinations,
        (*SERVICE, "CapacityProviderStrategy"),
        [{"CapacityProvider": "FARGATE_SPOT", "Weight": 1}],
        "tasks run on",
    ),
    (existence.wrong_combinations, of("ParkedAlarm", "AlarmActions"), MISSING, "ParkedAlarm notifies None"),
    (existence.wrong_combinations, of("WorkerTask", "RuntimePlatform", "CpuArchitecture"), "ARM64", "tasks run on"),
    (existence.wrong_combinations, of("WorkerSecurityGroup", "SecurityGroupIngress"), [], "or be connected to"),
    (existence.wrong_combinations, of("WorkerSecurityGroup", "SecurityGroupEgress"), [], "may connect to []"),
    (existence.wrong_combinations, of("PrivateRoute", "NatGatewayId"), MISSING, "to the fixed address"),
    (
        references.routes_that_come_late,
        of("PrivateRoute", "RouteTableId"),
        {"Ref": "PublicRoutes"},
        "no route leads out",
    ),
    (references.routes_that_come_late, ("Resources", "Late"), LATE, "does not wait for Late (public)"),
    (data.wrong_tables, (*TABLE, "StreamSpecification"), {"StreamViewType": "NEW_IMAGE"}, "NEW_AND_OLD_IMAGES"),
    (data.wrong_tables, of("MessagesTable", "TimeToLiveSpecification", "AttributeName"), "expiresAt", "time to live"),
    (data.wrong_tables, (*TABLE, "Replicas", 0, "PointInTimeRecoverySpecification"), MISSING, "point-in-time"),
    (data.wrong_tables, ("Resources", "MessagesTable", "DeletionPolicy"), "Delete", "would remove it"),
    (
        data.wrong_tables,
        (*TABLE, "AttributeDefinitions", 3),
        {"AttributeName": "x", "AttributeType": "N"},
        "defined are",
    ),
    (data.wrong_indexes, (*TABLE, "GlobalSecondaryIndexes", 0, "IndexName"), "by-expiry", "indexes are"),
    (
        data.wrong_indexes,
        (*TABLE, "GlobalSecondaryIndexes", 1, "Projection"),
        {"ProjectionType": "KEYS_ONLY"},
        "indexes",
    ),
    (data.wrong_billing, of("SessionsTable", "WriteProvisionedThroughputSettings"), MISSING, "have no MinCapacity"),
    (
        data.wrong_billing,
        of("SessionsTable", "WriteProvisionedThroughputSettings"),
        {"WriteCapacityAutoScalingSettings": {}},
        "PAY_PER_REQUEST: Write units are set",
    ),
    (data.wrong_queues, of("ClaimsQueue", "KmsMasterKeyId"), MISSING, "ClaimsQueue is not encrypted"),
    (data.wrong_queues, of("ClaimsQueue", "RedrivePolicy"), MISSING, "no dead-letter queue"),
    (data.wrong_queues, of("ClaimsDeadQueue", "MessageRetentionPeriod"), 600, "for longer than ClaimsQueue"),
    (data.wrong_queues, of("TicksQueue", "MessageRetentionPeriod"), MISSING, "TicksQueue has no retention"),
    (data.wrong_visibility, of("TicksQueue", "VisibilityTimeout"), 300, "after 300 s"),
    (data.wrong_visibility, ("Globals", "Function", "Timeout"), 90, "may take 90 s"),
    (data.wrong_stream, (*STREAM, "MaximumRetryAttempts"), -1, "retries"),
    (data.wrong_stream, (*STREAM, "MaximumRecordAgeInSeconds"), MISSING, "age"),
    (data.wrong_stream, (*STREAM, "BisectBatchOnFunctionError"), MISSING, "cut in two"),
    (data.wrong_stream, (*STREAM, "FunctionResponseTypes"), MISSING, "single records"),
    (data.wrong_stream, (*STREAM, "DestinationConfig"), MISSING, "goes nowhere"),
    (data.wrong_stream, (*STREAM, "StartingPosition"), "LATEST", "first poll"),
    (data.wrong_filters, (*STREAM, "FilterCriteria", "Filters", 0), MISSING, "not those of"),
    (data.wrong_filters, (*STREAM, "FilterCriteria", "Filters"), [{"Pattern": "{}"}] * 6, "6 patterns"),
    (data.wrong_concurrency, (*TICKS, "ScalingConfig", "MaximumConcurrency"), 4, "starts 4, reserved are 3"),
    (data.wrong_concurrency, ("Parameters", "ReconcileReservedConcurrency", "AllowedValues"), [0, 1], "reserved are 1"),
    (
        data.wrong_concurrency,
        of("ReconcileFunction", "ReservedConcurrentExecutions"),
        {"Ref": "ReconcileReservedConcurrency"},
        "turn the function off",
    ),
    (permissions.wrong_statements, statement("WorkerRole", "Claims", "Action"), ["sqs:*"], "does not name its actions"),
    (permissions.wrong_statements, statement("WorkerRole", "Claims", "Resource"), "*", "is for any resource"),
    (permissions.wrong_statements, statement("ReconcileRole", "Fleet", "Condition"), MISSING, "any cluster"),
    (
        permissions.wrong_statements,
        of("WorkerRole", "ManagedPolicyArns"),
        ["arn:aws:iam::aws:policy/X"],
        "others write",
    ),
    (
        permissions.wrong_senders,
        statement("ReconcileRole", "Key", "Action"),
        ["kms:Decrypt"],
        "may not kms:GenerateDataKey",
    ),
    (permissions.wrong_senders, statement("WorkerRole", "Key", "Resource"), {"Ref": "KmsKeyArn"}, "WorkerRole may not"),
    (
        permissions.wrong_senders,
        statement("DesiredStateRole", "Queues", "Resource"),
        [],
        "may not send to FailedEventsQueue",
    ),
    (permissions.wrong_key_policy, of("Key", "KeyPolicy", "Statement", 1, "Condition"), MISSING, "is for everybody"),
    (permissions.wrong_key_policy, of("WorkerLogs", "LogGroupName"), "/aws/worker", "not for the log group WorkerLogs"),
    (workers.sets_a_count, (*SERVICE, "DesiredCount"), 2, "DesiredCount"),
    (
        workers.wrong_service,
        (*SERVICE, "DeploymentConfiguration", "DeploymentCircuitBreaker", "Rollback"),
        False,
        "rolled back",
    ),
    (workers.wrong_service, (*SERVICE, "DeploymentConfiguration", "MinimumHealthyPercent"), 0, "before new ones run"),
    (workers.wrong_task, (*CONTAINER, "StopTimeout"), 30, "time to stop"),
    (workers.wrong_task, (*CONTAINER, "Ulimits"), MISSING, "nofile"),
    (workers.wrong_task, (*CONTAINER, "ReadonlyRootFilesystem"), False, "read-only"),
    (workers.wrong_task, (*CONTAINER, "User"), "root", "not root"),
    (workers.wrong_task, (*CONTAINER, "HealthCheck", "Timeout"), 4, "time to answer"),
    (workers.wrong_task, (*CONTAINER, "LogConfiguration", "Options", "mode"), "blocking", "stops nobody"),
    (workers.shells, (*CONTAINER, "HealthCheck", "Command"), ["CMD-SHELL", "/worker healthcheck"], "CMD-SHELL"),
    (workers.shells, (*CONTAINER, "EntryPoint"), ["/bin/sh", "-c", "/worker"], "/bin/sh"),
    (workers.wrong_sizes, ("Mappings", "Sizes", "small", "MemoryMib"), "4096", "no 256 units with 4096 MiB"),
    (workers.wrong_sizes, ("Mappings", "Sizes", "large", "MemoryBytes"), "8589934591", "are not 8589934591 bytes"),
    (workers.wrong_sizes, ("Parameters", "WorkerSize", "AllowedValues"), ["small", "medium"], "differ"),
    (workers.shutdown_that_takes_too_long, ("Parameters", "ShutdownMs", "MaxValue"), 100_000, "is killed after"),
    (
        alarms.wrong_functions,
        of("ReconcileFunction", "LoggingConfig", "LogGroup"),
        {"Ref": "WorkerLogs"},
        "writes to WorkerLogs",
    ),
    (alarms.wrong_functions, ("Globals", "Function", "Tracing"), MISSING, "is not traced"),
    (alarms.wrong_functions, of("WorkerLogs", "RetentionInDays"), MISSING, "no RetentionInDays"),
    (alarms.wrong_dimensions, of("ClaimsLateAlarm", "Dimensions", 0, "Value"), {"Ref": "ClaimsQueue"}, "QueueName is"),
    (
        alarms.wrong_dimensions,
        of("ReconcileErrorsAlarm", "Dimensions", 0, "Value"),
        {"Ref": "Cluster"},
        "FunctionName is",
    ),
    (
        alarms.wrong_dimensions,
        of("WorkersCpuAlarm", "Dimensions", 1, "Value"),
        {"Ref": "WorkerService"},
        "ServiceName is",
    ),
    (
        alarms.wrong_dimensions,
        of("ConnectionsThrottledAlarm", "Metrics", 2, "MetricStat", "Metric", "Dimensions", 1, "Value"),
        "by_nobody",
        "by_nobody",
    ),
    (alarms.wrong_dimensions, of("ReconcileErrorsAlarm", "MetricName"), "Error", "no metric Error"),
    (alarms.unwatched, ("Resources", "DesiredStateErrorsAlarm"), MISSING, "DesiredStateFunction"),
    (alarms.unwatched, ("Resources", "FailedEventsAlarm"), MISSING, "FailedEventsQueue"),
    (alarms.unwatched, of("ConnectionsThrottledAlarm", "Metrics", 6), MISSING, "by_owner"),
    (alarms.wrong_alarms, of("ParkedAlarm", "AlarmDescription"), "Parked", "does not name its section"),
    (alarms.wrong_alarms, of("ParkedAlarm", "TreatMissingData"), MISSING, "what silence means"),
    (alarms.wrong_alarms, of("FencedAlarm", "DatapointsToAlarm"), 2, "can never ring"),
    (
        alarms.wrong_alarms,
        of("SessionsThrottledAlarm", "Metrics", 0, "Expression"),
        "FILL(writes, 0)",
        "the expression names",
    ),
    (
        alarms.wrong_metrics,
        of("ParkedMetric", "FilterPattern"),
        '{ $.event = "sparked" }',
        "nobody writes the event sparked",
    ),
    (
        alarms.wrong_metrics,
        of("ParkedMetric", "LogGroupName"),
        {"Ref": "ReconcileLogs"},
        "nobody writes the event parked",
    ),
    (
        alarms.wrong_metrics,
        of("FencedMetric", "MetricTransformations", 0, "MetricValue"),
        "$.fences",
        "no field fences",
    ),
    (alarms.wrong_metrics, of("ParkedMetric", "FilterPattern"), '{ $.event = "claim_no_op" }', "at level debug"),
    (alarms.wrong_metrics, of("UnownedAlarm", "MetricName"), "Orphans", "Orphans, which nobody writes"),
    (alarms.wrong_metrics, ("Resources", "UnownedAlarm"), MISSING, "no alarm looks at Unowned"),
    (
        settings.wrong_names,
        ("Globals", "Function", "Environment", "Variables", "CLAIMS_QUEUE_URL"),
        {"Ref": "TicksQueue"},
        "desired-state is told CLAIMS_QUEUE_URL",
    ),
    (settings.wrong_settings, ("Parameters", "LeaseMs", "Default"), 30_000, "LEASE_MS is 20000 by default"),
    (settings.wrong_settings, ("Parameters", "MessageTtlS", "MaxValue"), 99, "are the bounds"),
    (settings.wrong_settings, ("Parameters", "OnStoreOutage", "AllowedValues"), ["close"], "the process takes"),
    (
        settings.wrong_settings,
        ("Globals", "Function", "Environment", "Variables", "SUSPECT_MS"),
        MISSING,
        "reconcile is told SUSPECT_MS = None",
    ),
    (settings.wrong_settings, (*CONTAINER, "Environment", 0, "Name"), "AWS_REGIONS", "does not read"),
    (settings.wrong_parameters, ("Parameters", "VpcCidr", "Default"), "10.0.0.0/8", "does not match"),
    (settings.wrong_parameters, ("Parameters", "Spot", "AllowedValues"), [True, False], "YAML booleans"),
    (settings.wrong_parameters, ("Parameters", "Capacity", "Default"), MISSING, "must be given"),
    (
        settings.wrong_parameters,
        ("Metadata", "AWS::CloudFormation::Interface", "ParameterGroups", 0),
        MISSING,
        "lists others",
    ),
]


@pytest.mark.parametrize(("check", "path", "value", "words"), PROMISES)
def test_a_promise_that_is_broken_is_found(check, path, value, words) -> None:
    assert_found(check(WHOLE.changed(*path, to=value)), words)


def assert_found(sentences: list[str], words: str) -> None:
    assert any(words in sentence for sentence in sentences), sentences


# ---------------------------------------------------------------- texts


def test_a_star_without_a_comment_is_found() -> None:
    text = WHOLE.text.replace("# X-Ray knows no resources", "- Sid: Nothing # X-Ray knows no resources")
    assert_found(permissions.wrong_statements(Template(text, WHOLE.raw)), "does not say why")


def test_a_suppressed_finding_without_a_comment_is_found() -> None:
    text = "\n".join(line for line in WHOLE.text.splitlines() if not line.strip().startswith("#"))
    assert len(settings.suppressed_without_a_reason(text)) == WHOLE.text.count("ignore_checks:")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("WorkerSize=small", "WorkerSize=tiny", "'tiny' is not allowed"),
        ("Spot=true", "Spots=true", "no parameter Spots"),
        ("LogRetentionDays=90", "LogRetentionDays=ninety", "is not allowed"),
        ("CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "which CAPABILITY_IAM allows"),
        ("leasehold-prod", "leasehold-dev", "share a stack"),
    ],
)
def test_a_value_in_samconfig_that_no_parameter_allows_is_found(old: str, new: str, words: str) -> None:
    text = (ROOT / "samconfig.toml").read_text(encoding="utf-8").replace(old, new)
    assert_found(settings.wrong_samconfig(WHOLE, text), words)


def test_a_parameter_or_an_alarm_without_a_word_in_the_documents_is_found() -> None:
    sentences = settings.undocumented(WHOLE, "`Spot`", "## ParkedAlarm\n\n## LongGoneAlarm\n")
    assert_found(sentences, "does not name WorkerImage")
    assert_found(sentences, "no section UnownedAlarm")
    assert_found(sentences, "a section LongGoneAlarm: there is no such alarm")
    assert not any("Spot" in sentence or "ParkedAlarm" in sentence for sentence in sentences)


# ---------------------------------------------------------------- the reading itself


def test_a_key_that_is_there_twice_is_an_error() -> None:
    with pytest.raises(yaml.YAMLError, match="'Type' is there twice"):
        yaml.load("Cluster:\n  Type: a\n  Type: b\n", Loader)


def test_short_tags_are_the_long_functions() -> None:
    text = "[!Ref A, !GetAtt A.B.C, !Sub 'x${A}', !If [HasA, 1, 2], !Condition HasA]"
    assert yaml.load(text, Loader) == [
        {"Ref": "A"},
        {"Fn::GetAtt": ["A", "B.C"]},
        {"Fn::Sub": "x${A}"},
        {"Fn::If": ["HasA", 1, 2]},
        {"Condition": "HasA"},
    ]


def test_conditions_are_decided_as_cloudformation_does_it() -> None:
    template = {
        "Parameters": {"Port": {"Type": "Number", "Default": 443}, "Name": {"Type": "String", "Default": ""}},
        "Conditions": {
            "Usual": {"Fn::Equals": [{"Ref": "Port"}, 443]},
            "Named": {"Fn::Not": [{"Fn::Equals": [{"Ref": "Name"}, ""]}]},
            "Both": {"Fn::And": [{"Condition": "Usual"}, {"Condition": "Named"}]},
            "Either": {"Fn::Or": [{"Condition": "Usual"}, {"Condition": "Named"}]},
        },
        "Resources": {
            "A": {"Type": "X", "Condition": "Both", "Properties": {}},
            "B": {"Type": "X", "Properties": {"C": {"Fn::If": ["Named", {"Ref": "Name"}, {"Ref": "AWS::NoValue"}]}}},
        },
    }
    plain = Deployment(template)
    assert plain.conditions == {"Usual": True, "Named": False, "Both": False, "Either": True}
    assert plain.resources == {"B": {"Type": "X", "Properties": {}}}
    named = Deployment(template, {"Name": "n", "Port": "444"})
    assert named.conditions == {"Usual": False, "Named": True, "Both": False, "Either": True}
    assert named.resources["B"]["Properties"] == {"C": "n"}
