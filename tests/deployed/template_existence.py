"""Checks of what exists for which parameters, and of what it then says.

A check returns sentences about what is wrong; an empty list is praise.
"""

import json

from template import Deployment, Template
from template_references import combinations


def wrong_combinations(template: Template) -> list[str]:
    """What exists for which parameters, and what it then says."""
    wrong = []
    for values in combinations():
        deployment = Deployment(template.deployed, values)
        wrong += [f"{sentence}: {values}" for sentence in _wrong_existence(deployment, values)]
    return wrong


def _wrong_existence(deployment: Deployment, values: dict[str, str]) -> list[str]:
    image, network = "WorkerImage" in values, values["Network"]
    own, fixed = network != "existing", network == "fixed-address"
    expected = {
        "WorkerService": image,
        "WorkerTask": image,
        "WorkersGoneAlarm": image,
        "WorkerRepository": True,
        "Cluster": True,
        "Key": "KmsKeyArn" not in values,
        "Vpc": own,
        "EndpointForDynamoDb": own,
        "EndpointForS3": own,
        "NatGateway": fixed,
        "FixedAddress": fixed,
        "WorkerEndpointForSqs": own and values.get("VpcEndpoints") == "true",
        "EndpointSecurityGroup": own and values.get("VpcEndpoints") == "true",
        "WorkerSecurityGroup": "SecurityGroupIds" not in values,
    }
    wrong = [
        f"{name} exists: {name in deployment.resources}"
        for name, exists in expected.items()
        if (name in deployment.resources) != exists
    ]
    if ("FixedAddress" in deployment.outputs) != fixed or ("WorkerService" in deployment.outputs) != image:
        wrong.append("outputs say something else")
    variables = deployment.resources["ReconcileFunction"]["Properties"]["Environment"]["Variables"]
    if ("ECS_SERVICE" in variables) != image or ("ECS_CLUSTER" in variables) != image:
        wrong.append("reconcile does not hear of the service")
    if ("AWS_ENDPOINT_URL" in variables) != ("AwsEndpointUrl" in values):
        wrong.append("functions ask another AWS than they should")
    for name, one in deployment.resources.items():
        actions = one["Properties"].get("AlarmActions") if one["Type"] == "AWS::CloudWatch::Alarm" else None
        if one["Type"] == "AWS::CloudWatch::Alarm" and actions != (
            [values["AlarmTopicArn"]] if "AlarmTopicArn" in values else None
        ):
            wrong.append(f"{name} notifies {actions}")
        # GetAZs has an empty argument: this region.
        if one["Type"] != "AWS::EC2::Subnet" and '""' in json.dumps(one):
            wrong.append(f"{name} has an empty value")
    wrong += _wrong_network(deployment, values)
    return wrong + (_wrong_service(deployment, values) if image and "WorkerService" in deployment.resources else [])


def _wrong_service(deployment: Deployment, values: dict[str, str]) -> list[str]:
    service = deployment.resources["WorkerService"]["Properties"]
    network = service["NetworkConfiguration"]["AwsvpcConfiguration"]
    subnets = {
        "public": [{"Ref": "PublicSubnetA"}, {"Ref": "PublicSubnetB"}],
        "fixed-address": [{"Ref": "PrivateSubnetA"}, {"Ref": "PrivateSubnetB"}],
        "existing": values.get("SubnetIds", "").split(","),
    }[values["Network"]]
    address = {"public": "ENABLED", "fixed-address": "DISABLED", "existing": values.get("AssignPublicIp", "DISABLED")}[
        values["Network"]
    ]
    groups = values["SecurityGroupIds"].split(",") if "SecurityGroupIds" in values else [{"Ref": "WorkerSecurityGroup"}]
    wrong = []
    if (network["Subnets"], network["AssignPublicIp"], network["SecurityGroups"]) != (subnets, address, groups):
        wrong.append(f"the tasks' network is {network}")
    providers = {
        one["CapacityProvider"]: (one.get("Base", 0), one.get("Weight", 0))
        for one in service["CapacityProviderStrategy"]
    }
    if providers != ({"FARGATE": (1, 0), "FARGATE_SPOT": (0, 1)} if "Spot" in values else {"FARGATE": (0, 1)}):
        wrong.append(f"tasks run on {providers}")
    architecture = deployment.resources["WorkerTask"]["Properties"]["RuntimePlatform"]["CpuArchitecture"]
    if architecture != values.get("Architecture", "x86_64").upper():
        wrong.append(f"tasks run on {architecture}")
    return wrong


def _wrong_network(deployment: Deployment, values: dict[str, str]) -> list[str]:
    """Nobody connects to a worker, and it connects to 443 and the given ports. Private subnets lead to the NAT
    gateway."""
    wrong = []
    properties = {name: one.get("Properties", {}) for name, one in deployment.resources.items()}
    if group := properties.get("WorkerSecurityGroup"):
        ports = [
            (rule["IpProtocol"], int(rule["FromPort"]), int(rule["ToPort"])) for rule in group["SecurityGroupEgress"]
        ]
        wanted = [("tcp", 443, 443)] + ([("tcp", 443, int(values["EgressToPort"]))] if "EgressToPort" in values else [])
        if "SecurityGroupIngress" in group or ports != wanted:
            wrong.append(f"workers may connect to {ports}, or be connected to")
        own = {"Ref": "Vpc"} if "Vpc" in properties else values.get("VpcId")
        if group["VpcId"] != own:
            wrong.append(f"the workers' security group is in {group['VpcId']}")
    if "PublicRoute" in properties and properties["PublicRoute"].get("GatewayId") != {"Ref": "InternetGateway"}:
        wrong.append("public subnets do not lead to the internet")
    if "NatGateway" in properties:
        if properties["NatGateway"]["SubnetId"] != {"Ref": "PublicSubnetA"}:
            wrong.append("the NAT gateway has no way out itself")
        if properties["PrivateRoute"].get("NatGatewayId") != {"Ref": "NatGateway"}:
            wrong.append("private subnets do not lead to the fixed address")
    return wrong


def refused(template: Template, values: dict[str, str]) -> list[str]:
    """What the template's rules say against these values."""
    deployment = Deployment(template.deployed, values)
    said = []
    for rule in template.deployed.get("Rules", {}).values():
        if "RuleCondition" not in rule or deployment.decide(rule["RuleCondition"]):
            said += [one["AssertDescription"] for one in rule["Assertions"] if not deployment.decide(one["Assert"])]
    return said
