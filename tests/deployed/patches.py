"""Starts MiniStack with patches for what it does otherwise than AWS and these tests depend on.

Run by the interpreter of the emulator's virtual environment. Each patch says its name on standard output; the tests repeat that, so that
a result that depends on a patch says so. Pinned to the version in requirements/emulator.txt: a patch that finds nothing to patch fails.
"""

from __future__ import annotations

import json
import os
import resource
import runpy
import secrets
import signal
import threading
import time

from ministack.core import iam_actions
from ministack.core.responses import get_account_id, get_region, new_uuid, request_scope
from ministack.services import dynamodb, ecs, eventbridge, lambda_svc, sts
from ministack.services.cloudformation import provisioners


def main() -> None:
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()
    for patch in (task_state_events, task_role_credentials, container_options, stop_time_out, stream_retries,
                  filters_of_absent_images, metric_math_alarms, queue_batch_actions):
        patch()
        print(f"patched: {patch.__name__}: {' '.join(patch.__doc__.split())}", flush=True)
    runpy.run_module("ministack", run_name="__main__")


def end_with_parent(parent: int) -> None:
    """Whatever becomes of the tests, the emulator does not outlive them, nor do its functions."""
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(os.getpgid(0), signal.SIGKILL)


def task_state_events() -> None:
    """ECS sends a Task State Change once a task's containers are gone (MiniStack sends none)."""
    clean_up = ecs._cleanup_task_resources

    def clean_up_and_tell(task: dict, docker_client: object, extra_container: object = None) -> None:
        clean_up(task, docker_client, extra_container)
        if task.get("lastStatus") == "STOPPED":
            eventbridge._dispatch_event({
                "EventId": new_uuid(),
                "Source": "aws.ecs",
                "DetailType": "ECS Task State Change",
                "Detail": json.dumps(ecs._sanitize(task), default=str),
                "EventBusName": "default",
                "Time": ecs._iso(),
                "Resources": [task["taskArn"]],
                "Account": get_account_id(),
                "Region": get_region(),
            })

    ecs._cleanup_task_resources = clean_up_and_tell


def task_role_credentials() -> None:
    """A container gets its task role's credentials in its environment (MiniStack serves them at a plain HTTP address that SDKs refuse)."""
    register = ecs._register_metadata

    def register_with_keys(task_arn: str, cluster_arn: str, definition: dict, container: dict, launch_type: str, env: dict,
                           *rest: object) -> str:
        token = register(task_arn, cluster_arn, definition, container, launch_type, env, *rest)
        del env["AWS_CONTAINER_CREDENTIALS_FULL_URI"], env["AWS_CONTAINER_AUTHORIZATION_TOKEN"]
        role = definition.get("taskRoleArn", "").rsplit("/", 1)[-1]
        session = task_arn.rsplit("/", 1)[-1]
        key, secret, session_token = f"ASIA{secrets.token_hex(8).upper()}", secrets.token_hex(20), secrets.token_hex(32)
        sts.register_session(key, {
            "Arn": f"arn:aws:sts::{get_account_id()}:assumed-role/{role}/{session}",
            "UserId": f"{role}:{session}",
            "SecretAccessKey": secret,
            "SessionToken": session_token,
        })
        env |= {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": session_token}
        return token

    ecs._register_metadata = register_with_keys


def container_options() -> None:
    """A container runs with the user, read-only root, capabilities, descriptors and memory of its task definition (MiniStack ignores them;
    descriptors as far as this machine has them)."""
    build = ecs._build_run_kwargs

    def build_with_options(container: dict, definition: dict, *rest: object) -> dict:
        from docker.types import Ulimit

        options = build(container, definition, *rest)
        wanted = as_the_api_says(container)
        options["user"] = wanted.get("user")
        options["read_only"] = str(wanted.get("readonlyRootFilesystem")).lower() == "true"
        options["cap_drop"] = wanted.get("linuxParameters", {}).get("capabilities", {}).get("drop", [])
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        options["ulimits"] = [Ulimit(name=limit["name"], soft=min(most, int(limit["softLimit"])), hard=min(most, int(limit["hardLimit"])))
                              for limit in wanted.get("ulimits", []) if limit["name"] == "nofile"]
        options["mem_limit"] = f"{definition['memory']}m"
        return options

    ecs._build_run_kwargs = build_with_options


def stop_time_out() -> None:
    """A container has the stop time-out of its task definition until it is killed (MiniStack: 5 s)."""
    from docker.models.containers import Container

    stop = Container.stop

    def stop_patiently(self: Container, **options: object) -> None:
        # A task's container, and not one that a reset clears away. All task definitions of these tests have the template's time-out.
        stop(self, **{**options, "timeout": 120 if options.get("timeout") == 5 else options.get("timeout")})

    Container.stop = stop_patiently


def stream_retries() -> None:
    """A stream mapping honours batchItemFailures and MaximumRetryAttempts (MiniStack honours neither; neither bisects)."""
    execute, poll = lambda_svc._execute_function, lambda_svc._poll_dynamodb_streams
    calls: list[tuple[dict, list, dict]] = []
    tries: dict[tuple[str, str], int] = {}

    def note(function: dict, event: object, *rest: object, **options: object) -> dict:
        result = execute(function, event, *rest, **options)
        records = event.get("Records") if isinstance(event, dict) else None
        if records and records[0].get("eventSource") == "aws:dynamodb":
            calls.append((function, records, result))
        return result

    def poll_and_correct() -> bool:
        calls.clear()
        positions = lambda_svc._dynamodb_stream_positions
        before = dict(positions._data)
        done = poll()
        for function, records, result in calls:
            for account, region, mapping in lambda_svc._iter_all_esms():
                config = function.get("config") or function
                if mapping.get("FunctionName") == config.get("FunctionName") and mapping.get("EventSourceArn") == records[0]["eventSourceARN"]:
                    with request_scope(account, region):
                        correct(function, records, result, mapping, before)
        return done

    def correct(function: dict, records: list, result: dict, mapping: dict, before: dict) -> None:
        bad = failed_records(records, result)
        if not bad:
            return
        mapping_id, source = mapping["UUID"], mapping["EventSourceArn"]
        table = source.split("/stream/")[0].split("/")[-1]
        first = sequence_number(bad[0])
        tries[mapping_id, first] = tries.get((mapping_id, first), 0) + 1
        start = max([position for key, position in before.items() if key[-1] == mapping_id], default=0)
        start = max(start, dynamodb.stream_start_position(table))
        raw = dynamodb.stream_records_since(table, start, mapping.get("BatchSize", 100))
        index = next(i for i, record in enumerate(raw) if sequence_number(record) == first)
        positions = lambda_svc._dynamodb_stream_positions
        if tries[mapping_id, first] > mapping.get("MaximumRetryAttempts", -1) >= 0:
            whole = bool(result.get("error"))
            lambda_svc._send_ddb_stream_failure_record(mapping, function, bad if whole else bad[:1], source, result, "RetryAttemptsExhausted")
            positions[mapping_id] = start + (len(raw) if whole else index + 1)
            lambda_svc._esm_backoff_until.pop(mapping_id, None)
            del tries[mapping_id, first]
        elif not result.get("error"):
            positions[mapping_id] = start + index
            lambda_svc._esm_backoff_until[mapping_id] = time.time() + 0.5

    lambda_svc._execute_function, lambda_svc._poll_dynamodb_streams = note, poll_and_correct


def filters_of_absent_images() -> None:
    """A filter's `exists: false` holds where the whole image is absent, as in an INSERT (MiniStack wants the image to be there)."""
    match = lambda_svc._match_esm_filter

    def match_leaves(record: dict, pattern: dict) -> bool:
        for key, wanted in pattern.items():
            if isinstance(wanted, dict):
                inner = record.get(key)
                if not match_leaves(inner if isinstance(inner, dict) else {}, wanted):
                    return False
            elif not match(record, {key: wanted}):
                return False
        return True

    lambda_svc._match_esm_filter = match_leaves


def metric_math_alarms() -> None:
    """An alarm of metric math is made, and never evaluated (MiniStack refuses it)."""
    record = provisioners._cw_metric_alarm_record

    def record_of_first_metric(name: str, properties: dict) -> dict:
        metrics = [metric["MetricStat"] for metric in properties.get("Metrics", []) if "MetricStat" in metric]
        if metrics:
            properties = {key: value for key, value in properties.items() if key != "Metrics"}
            properties |= {**metrics[0]["Metric"], "Statistic": metrics[0]["Stat"], "Period": metrics[0]["Period"], "ActionsEnabled": False}
        return record(name, properties)

    provisioners._cw_metric_alarm_record = record_of_first_metric


def queue_batch_actions() -> None:
    """A batch request to SQS needs the permission of the single one, as AWS documents it (MiniStack wants a permission of its own)."""
    extract = iam_actions.extract_iam_action

    def extract_single(*arguments: object, **options: object) -> str | None:
        action = extract(*arguments, **options)
        return action.removesuffix("Batch") if action and action.startswith("sqs:") else action

    iam_actions.extract_iam_action = extract_single


def as_the_api_says(value: object) -> object:
    """Keys as the ECS API spells them: CloudFormation's begin with a capital, and MiniStack passes the inner ones on as they are."""
    if isinstance(value, dict):
        return {key[:1].lower() + key[1:]: as_the_api_says(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [as_the_api_says(inner) for inner in value]
    return value


def sequence_number(record: dict) -> str:
    return record["dynamodb"]["SequenceNumber"]


def failed_records(records: list, result: dict) -> list:
    """The records of a batch that a function could not handle: all of them, or those that it names."""
    if result.get("error"):
        return records
    body = result.get("body")
    if isinstance(body, str):
        body = json.loads(body) if body.startswith("{") else {}
    named = {failure.get("itemIdentifier") for failure in (body or {}).get("batchItemFailures", [])}
    return [record for record in records if sequence_number(record) in named]


if __name__ == "__main__":
    main()
