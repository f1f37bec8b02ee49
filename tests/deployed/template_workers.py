"""Checks of the workers: service, task, sizes, shutdown."""

from template import Deployment, Template, walk
from template_references import IMAGE

# CPU units and the memory in MiB that goes with them: "Amazon ECS task definition parameters for Fargate", task size.
FARGATE_SIZES = {
    256: {512, 1024, 2048},
    512: set(range(1024, 4096 + 1, 1024)),
    1024: set(range(2048, 8192 + 1, 1024)),
    2048: set(range(4096, 16384 + 1, 1024)),
    4096: set(range(8192, 30720 + 1, 1024)),
}
# What Fargate allows at most: "ContainerDefinition", stopTimeout.
LONGEST_STOP_S = 120
SHELLS = ("sh", "bash", "CMD-SHELL")


def sets_a_count(template: Template) -> list[str]:
    """A count in a template is set again by each deployment. aws-cloudformation/cloudformation-coverage-roadmap#187:
    a deployment took a service from 100 tasks to 2."""
    places = [path for path, _ in walk(template.deployed["Resources"]) if path and path[-1] == "DesiredCount"]
    return [f"{'.'.join(map(str, path))} sets the count of tasks" for path in places]


def wrong_service(template: Template) -> list[str]:
    """A deployment starts the new tasks first, and is rolled back if they do not live."""
    service = template.deployed["Resources"]["WorkerService"]["Properties"]
    configuration = service.get("DeploymentConfiguration", {})
    wrong = []
    if configuration.get("DeploymentCircuitBreaker") != {"Enable": True, "Rollback": True}:
        wrong.append("a deployment that fails is not rolled back")
    if configuration.get("MinimumHealthyPercent") != 100 or configuration.get("MaximumPercent", 0) <= 100:
        wrong.append("old tasks are stopped before new ones run")
    if "LaunchType" in service:
        wrong.append("a launch type excludes the capacity providers")
    cluster = template.deployed["Resources"]["Cluster"]["Properties"]
    if set(cluster.get("CapacityProviders", [])) != {"FARGATE", "FARGATE_SPOT"}:
        wrong.append("the cluster does not have the capacity providers")
    return wrong


def wrong_task(template: Template) -> list[str]:
    """The worker's container, as the service runs it."""
    task = Deployment(template.deployed, {"WorkerImage": IMAGE}).resources["WorkerTask"]["Properties"]
    (container,) = task["ContainerDefinitions"]
    options = container.get("LogConfiguration", {}).get("Options", {})
    check = container.get("HealthCheck", {})
    wanted = {
        "the image is the given one": container.get("Image") == IMAGE,
        "the time to stop is Fargate's longest": container.get("StopTimeout") == LONGEST_STOP_S,
        "nofile is raised": container.get("Ulimits") == [{"Name": "nofile", "SoftLimit": 65535, "HardLimit": 65535}],
        "the root file system is read-only": container.get("ReadonlyRootFilesystem") is True,
        "the user is a number, and not root": container.get("User") == "65532:65532",
        "no capability is left": container.get("LinuxParameters", {}).get("Capabilities") == {"Drop": ["ALL"]},
        "the health check is the worker itself": check.get("Command") == ["CMD", "/worker", "healthcheck"],
        # docs/settings.md: it waits 4 s at most.
        "the health check has time to answer": check.get("Timeout", 0) > 4,
        "the image's own entry point is used": not {"EntryPoint", "Command"} & set(container),
        "a log that cannot be sent stops nobody": options.get("mode") == "non-blocking"
        and "max-buffer-size" in options,
        "the log is the workers'": options.get("awslogs-group") == {"Ref": "WorkerLogs"},
        "two roles": task.get("TaskRoleArn") == {"Fn::GetAtt": ["WorkerRole", "Arn"]}
        and task.get("ExecutionRoleArn") == {"Fn::GetAtt": ["WorkerExecutionRole", "Arn"]},
        "it runs on Fargate": (task.get("RequiresCompatibilities"), task.get("NetworkMode")) == (["FARGATE"], "awsvpc"),
    }
    return [f"not true: {sentence}" for sentence, true in wanted.items() if not true]


def shells(template: Template) -> list[str]:
    """A shell does not pass signals on, and the image has none."""
    task = template.deployed["Resources"]["WorkerTask"]
    words = [(path, node) for path, node in walk(task) if isinstance(node, str)]
    return [f"{path}: {node}" for path, node in words if node in SHELLS or node.endswith(("/sh", "/bash"))]


def wrong_sizes(template: Template) -> list[str]:
    """Every size is one that Fargate has, and the worker is told the memory that it gets."""
    wrong = []
    sizes = template.raw["Mappings"]["Sizes"]
    if set(sizes) != set(template.raw["Parameters"]["WorkerSize"]["AllowedValues"]):
        wrong.append("sizes and WorkerSize differ")
    for name, size in sizes.items():
        cpu, memory_mib, memory_bytes = int(size["Cpu"]), int(size["MemoryMib"]), int(size["MemoryBytes"])
        if memory_mib not in FARGATE_SIZES.get(cpu, set()):
            wrong.append(f"{name}: Fargate has no {cpu} units with {memory_mib} MiB")
        if memory_bytes != memory_mib * 1_048_576:
            wrong.append(f"{name}: {memory_mib} MiB are not {memory_bytes} bytes")
        values = {"WorkerImage": IMAGE, "WorkerSize": name}
        task = Deployment(template.deployed, values).resources["WorkerTask"]["Properties"]
        if (task["Cpu"], task["Memory"]) != (size["Cpu"], size["MemoryMib"]):
            wrong.append(f"{name}: the task has {task['Cpu']} and {task['Memory']}")
    return wrong


def shutdown_that_takes_too_long(template: Template) -> list[str]:
    """docs/settings.md: about 2 x (SHUTDOWN_MS + 200 ms) + 8 s (ending the session) + 8 s (claims), below the stop
    time-out."""
    longest_ms = 2 * (template.raw["Parameters"]["ShutdownMs"]["MaxValue"] + 200) + 8_000 + 8_000
    (container,) = template.raw["Resources"]["WorkerTask"]["Properties"]["ContainerDefinitions"]
    stop_ms = container.get("StopTimeout", 30) * 1_000
    return (
        []
        if longest_ms < stop_ms
        else [f"shutdown may take {longest_ms} ms, the container is killed after {stop_ms} ms"]
    )
