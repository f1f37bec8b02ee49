"""A stack that `sam deploy` has made on the emulator, and what a user does with it through boto3."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import boto3

import emulator
import template
from emulator import Emulator

DEPLOY_TIMEOUT_S = 300


class DeployFailed(Exception):
    """`sam deploy` failed; its output."""


class Stack:
    """The stack `name`. `built` is a folder that `sam build` made, or a copy of one."""

    def __init__(self, aws: Emulator, sam: Path, built: Path, name: str = "leasehold"):
        self._aws = aws
        self._sam = sam
        self.built = built
        self.name = name
        self.endpoint = aws.endpoint
        self.outputs: dict[str, str] = {}

    def deploy(self, **parameters: str) -> str:
        """Deploys, or updates: parameters that are not named keep their value. Returns what sam printed. Raises DeployFailed."""
        command = [self._sam, "deploy", "--template-file", self.built / "template.yaml", "--stack-name", self.name, "--resolve-s3",
                   "--capabilities", "CAPABILITY_IAM", "--no-confirm-changeset", "--no-progressbar", "--no-fail-on-empty-changeset"]
        if parameters:
            command += ["--parameter-overrides", *[f"{name}={value}" for name, value in parameters.items()]]
        environment = {**emulator.credentials(), "PATH": os.environ["PATH"], "HOME": str(self._aws.log.parent), "SAM_CLI_TELEMETRY": "0",
                       "AWS_ENDPOINT_URL": self.endpoint}
        # Not the repository: its samconfig.toml would be read.
        result = subprocess.run([str(part) for part in command], env=environment, cwd=self.built, capture_output=True, text=True,
                                timeout=DEPLOY_TIMEOUT_S)
        output = result.stdout + result.stderr
        if result.returncode != 0:
            raise DeployFailed(output)
        self.outputs = self._read_outputs()
        return output

    def delete(self) -> None:
        self.client("cloudformation").delete_stack(StackName=self.name)

    def _read_outputs(self) -> dict[str, str]:
        stack = self.client("cloudformation").describe_stacks(StackName=self.name)["Stacks"][0]
        return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}

    def client(self, service: str):
        return emulator.client(service, self.endpoint)

    # ------------------------------------------------------------ what a user does

    def write_row(self, connection: str, **attributes: object) -> None:
        """Puts a whole row, as a user would by hand: what was in it before is gone."""
        self._table("ConnectionsTable").put_item(Item={"Pk": f"CONN#{connection}", **attributes})

    def set_desired_state(self, connection: str, desired_state: str) -> None:
        self._table("ConnectionsTable").update_item(Key={"Pk": f"CONN#{connection}"}, UpdateExpression="SET desired_state = :wish",
                                                    ExpressionAttributeValues={":wish": desired_state})

    def delete_row(self, connection: str) -> None:
        self._table("ConnectionsTable").delete_item(Key={"Pk": f"CONN#{connection}"})

    def rows(self, output: str) -> list[dict]:
        """All rows of the table of that output."""
        table, rows, start = self._table(output), [], {}
        while True:
            page = table.scan(ConsistentRead=True, **start)
            rows += page["Items"]
            if "LastEvaluatedKey" not in page:
                return rows
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def _table(self, output: str):
        return boto3.resource("dynamodb", endpoint_url=self.endpoint, **emulator.client_settings()).Table(self.outputs[output])

    # ------------------------------------------------------------ the workers' service

    def scale(self, count: int) -> None:
        """Sets the number of tasks, as people do: the template never does."""
        self.client("ecs").update_service(cluster=self.outputs["Cluster"], service=self.outputs["WorkerService"], desiredCount=count)

    def tasks(self) -> list[dict]:
        """The running tasks."""
        ecs = self.client("ecs")
        arns = ecs.list_tasks(cluster=self.outputs["Cluster"], serviceName=self.outputs["WorkerService"], desiredStatus="RUNNING")["taskArns"]
        if not arns:
            return []
        tasks = ecs.describe_tasks(cluster=self.outputs["Cluster"], tasks=arns)["tasks"]
        return [task for task in tasks if task["lastStatus"] == "RUNNING"]

    def running_images(self) -> list[str]:
        return sorted(task["containers"][0]["image"] for task in self.tasks())

    # ------------------------------------------------------------ logs

    def log_lines(self, group: str, containing: str = "") -> list[str]:
        """Lines of the log group `/leasehold/STACK/group`."""
        logs = self.client("logs")
        name, lines, token = f"/leasehold/{self.name}/{group}", [], {}
        while True:
            page = logs.filter_log_events(logGroupName=name, **token)
            lines += [event["message"] for event in page.get("events", [])]
            if not page.get("nextToken"):
                return [line for line in lines if containing in line]
            token = {"nextToken": page["nextToken"]}

    def queue_depth(self, output: str) -> int:
        """Messages that are visible or in flight."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self.client("sqs").get_queue_attributes(QueueUrl=self.outputs[output], AttributeNames=names)
        return sum(int(answer["Attributes"][name]) for name in names)


def with_functions(built: Path, copy: Path, binaries: Path) -> Path:
    """A copy of a built folder whose functions are the `binaries`: the template of this version with the functions of another."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(built, copy)
    for function, binary in (("DesiredStateFunction", "desired-state"), ("ReconcileFunction", "reconcile")):
        shipped = copy / function / "bootstrap"
        other = (binaries / binary).read_bytes()
        assert other != shipped.read_bytes(), f"{binaries / binary} is this version's"
        shipped.write_bytes(other)
    return copy


def without_permission(built: Path, copy: Path, role: str, statement: str, action: str = "", resource: str = "") -> Path:
    """A copy of a built folder whose template lacks a permission: `action`, or `resource` (a logical id), of the statement of `role` with
    that Sid."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(built, copy)
    contents = template.read(copy / "template.yaml").raw
    statements = contents["Resources"][role]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"]
    wanted = next(entry for entry in statements if entry.get("Sid") == statement)
    kind, unwanted = ("Action", action) if action else ("Resource", resource)
    kept = [one for one in wanted[kind] if unwanted not in json.dumps(one)]
    assert len(kept) == len(wanted[kind]) - 1, f"{role} has {len(wanted[kind]) - len(kept)} of {unwanted}"
    wanted[kind] = kept
    (copy / "template.yaml").write_text(json.dumps(contents))
    return copy


def wait_until(condition, timeout_s: float, what: str, interval_s: float = 0.5) -> float:
    """Waits until `condition()` is true. Returns how long that took. Fails with `what`, and what the condition last said."""
    began = time.monotonic()
    while True:
        last = condition()
        if last is True:
            return time.monotonic() - began
        assert time.monotonic() - began < timeout_s, f"not within {timeout_s} s: {what} (last: {last})"
        time.sleep(interval_s)
