//! Worker processes: the same binary entry as in a container, started with ordinary AWS SDK settings, ended by real signals.

use super::System;
use crate::events::ecs::{ContainerState, TaskState};
use leasehold::settings;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use tokio::process::{Child, Command};

/// How worker processes are started.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments, so that it runs the worker's entry.
    pub arguments: Vec<String>,
    /// More environment, over what every worker gets.
    pub environment: Vec<(String, String)>,
    /// Where logs go: one file a worker, `worker-N.log`.
    pub log_directory: PathBuf,
}

/// A worker process.
#[derive(Debug)]
pub struct WorkerProcess {
    child: Child,
    pid: Pid,
    /// Its number, from 1.
    pub number: u32,
    /// The ARN that it says of itself, and that task events name.
    pub task_arn: String,
    started_ms: u64,
}

const CLUSTER_ARN: &str = "arn:aws:ecs:us-east-1:000000000000:cluster/leasehold";

impl WorkerProcess {
    /// Starts worker number `number`. It ends with this value, whatever happens.
    ///
    /// # Errors
    /// When the program or its log cannot be opened.
    pub fn start(system: &System, command: &WorkerCommand, number: u32) -> io::Result<Self> {
        let task_arn = format!("arn:aws:ecs:us-east-1:000000000000:task/leasehold/{number:032x}");
        let log = open_log(&command.log_directory, number)?;
        let stack = system.stack();
        let mut process = Command::new(&command.program);
        process
            .args(&command.arguments)
            .env("AWS_ENDPOINT_URL_DYNAMODB", system.dynamodb_url())
            .env("AWS_ENDPOINT_URL_SQS", system.sqs_url())
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "local")
            .env("AWS_SECRET_ACCESS_KEY", "local")
            .env("CONNECTIONS_TABLE", &stack.tables.connections)
            .env("SESSIONS_TABLE", &stack.tables.sessions)
            .env("MESSAGES_TABLE", &stack.tables.messages)
            .env("CLAIMS_QUEUE_URL", &stack.queues.claims)
            .env("TASK_ARN", &task_arn)
            .env("HEALTH_ADDR", "off")
            .env("ON_STORE_OUTAGE", "close")
            // Said in full, so that nothing in the user's environment makes workers and functions disagree.
            .envs(settings::timing_variables(&system.settings.timing))
            .envs(command.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .kill_on_drop(true);
        let child = process.spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.ok_or_else(|| io::Error::other("the worker ended before it could be watched"))?;
        let started_ms = system.settings.clock.wall_ms();
        Ok(Self { child, pid, number, task_arn, started_ms })
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Sends a signal to this process, by its id.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        kill_process(self.pid, signal).map_err(io::Error::from)
    }

    /// Waits for the process's end.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// What ECS reports when the task has stopped with `exit_code`.
    #[must_use]
    pub fn stopped_task(&self, exit_code: i32, now_ms: u64) -> TaskState {
        TaskState {
            task_arn: self.task_arn.clone(),
            cluster_arn: CLUSTER_ARN.to_owned(),
            task_definition_arn: "arn:aws:ecs:us-east-1:000000000000:task-definition/leasehold-worker:1".to_owned(),
            group: "service:leasehold-worker".to_owned(),
            last_status: "STOPPED".to_owned(),
            desired_status: "STOPPED".to_owned(),
            stop_code: Some("EssentialContainerExited".to_owned()),
            stopped_reason: Some("Essential container in task exited".to_owned()),
            containers: vec![ContainerState {
                name: "worker".to_owned(),
                last_status: "STOPPED".to_owned(),
                exit_code: Some(exit_code),
                reason: None,
            }],
            version: 5,
            created_ms: self.started_ms,
            stopped_ms: Some(now_ms),
        }
    }
}

fn open_log(directory: &Path, number: u32) -> io::Result<File> {
    std::fs::create_dir_all(directory)?;
    File::create(directory.join(format!("worker-{number}.log")))
}
