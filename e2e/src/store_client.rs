//! The unmodified client from `PyPI`, behind `e2e/client/store_client.py`.

use crate::{clock::Moment, cluster::Cluster, gap::Sample, instance::eventually};
use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use std::{fs::File, path::Path, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
};

/// The node's own address inside the cluster's namespace, where clients run.
const NODE: &str = "10.250.0.2";
/// No operation takes longer than this: the client's own time-out is a second.
const LONGEST: Duration = Duration::from_secs(60);
/// What the client reports when the master answered that the key is not there.
pub const OBJECT_NOT_FOUND: i64 = -704;

/// A running client. It is killed when dropped.
#[derive(Debug)]
pub struct StoreClient {
    _child: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

/// The calls that a client made from [`StoreClient::sample`] on.
#[derive(Debug)]
pub struct Samples {
    /// `ExistKey`.
    pub exist: Vec<Sample>,
    /// `GetReplicaList`, by `get_size` of a key that does not exist: a miss is an answer.
    pub get: Vec<Sample>,
    /// A put whose value was read back.
    pub put: Vec<Sample>,
}

impl StoreClient {
    /// Starts a client and lets it mount `segment_bytes` (0: none) at the master behind `service`: an address, or a
    /// name as pods of the namespace `default` resolve it, and a port.
    pub async fn start(
        cluster: &Cluster,
        service: &str,
        segment_bytes: u64,
        logs: &Path,
    ) -> anyhow::Result<StoreClient> {
        let log = File::options().create(true).append(true).open(logs.join("client.log"))?;
        let mut command = tokio::process::Command::from(cluster.python());
        let mut child = command
            .arg(cluster.file("e2e/client/store_client.py"))
            .env("MC_TCP_BIND_ADDRESS", NODE)
            .env("MC_RPC_TIMEOUT_MS", "1000")
            .env("MC_RPC_CONNECT_TIMEOUT_MS", "1000")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let requests = child.stdin.take().context("stdin")?;
        let answers = BufReader::new(child.stdout.take().context("stdout")?).lines();
        let mut client = StoreClient { _child: child, requests, answers };
        let setup = json!({"op": "setup", "master": service, "host": NODE,
            "segment_bytes": segment_bytes, "buffer_bytes": 32 << 20});
        let code = client.call(setup).await?;
        ensure!(code == 0, "setup: {code}");
        Ok(client)
    }

    /// Puts the value that belongs to `key`; the master's code.
    pub async fn put(&mut self, key: &str, size: u64) -> anyhow::Result<i64> {
        self.code(json!({"op": "put", "key": key, "size": size})).await
    }

    /// Whether `key` holds the value that belongs to it, byte for byte.
    pub async fn get(&mut self, key: &str, size: u64) -> anyhow::Result<bool> {
        let found = self.call(json!({"op": "get", "key": key, "size": size})).await?;
        match found.as_str() {
            Some("equal") => Ok(true),
            Some("missing") => Ok(false),
            _ => bail!("get {key}: {found}"),
        }
    }

    /// Waits until a value can be put as `key` and read back.
    ///
    /// # Errors
    /// When it cannot within a minute.
    pub async fn works(&mut self, key: &str) -> anyhow::Result<()> {
        eventually("the client puts and gets again", Duration::from_secs(60), async || {
            (self.put(key, 4096).await.ok()? == 0 && self.get(key, 4096).await.ok()?).then_some(())
        })
        .await
    }

    /// 1, 0, or the master's code.
    pub async fn exist(&mut self, key: &str) -> anyhow::Result<i64> {
        self.code(json!({"op": "exist", "key": key})).await
    }

    /// From now on the client calls Exist, Get and Put again and again.
    pub async fn sample(&mut self, interval: Duration) -> anyhow::Result<()> {
        self.call(json!({"op": "sample", "interval_ms": interval.as_millis() as u64})).await.map(drop)
    }

    /// Ends that.
    pub async fn samples(&mut self) -> anyhow::Result<Samples> {
        let all = self.call(json!({"op": "samples"})).await?;
        let of = |kind: &str, answered: fn(i64) -> bool| -> anyhow::Result<Vec<Sample>> {
            let list = all[kind].as_array().with_context(|| format!("{kind}: {all}"))?;
            let sample = |entry: &Value| {
                Some(Sample {
                    began: Moment::from_nanos(entry[0].as_u64()?),
                    ended: Moment::from_nanos(entry[1].as_u64()?),
                    answered: answered(entry[2].as_i64()?),
                })
            };
            list.iter().map(sample).collect::<Option<Vec<_>>>().context("samples")
        };
        Ok(Samples {
            exist: of("exist", |code| code >= 0)?,
            get: of("get", |code| code >= 0 || code == OBJECT_NOT_FOUND)?,
            put: of("put", |code| code == 0)?,
        })
    }

    async fn code(&mut self, request: Value) -> anyhow::Result<i64> {
        let result = self.call(request).await?;
        result.as_i64().with_context(|| format!("a code expected, found {result}"))
    }

    async fn call(&mut self, request: Value) -> anyhow::Result<Value> {
        self.requests.write_all(format!("{request}\n").as_bytes()).await?;
        let line = tokio::time::timeout(LONGEST, self.answers.next_line())
            .await
            .with_context(|| format!("{request}: no answer within {LONGEST:?}"))??
            .with_context(|| format!("{request}: the client ended"))?;
        let mut answer: Value = serde_json::from_str(&line)?;
        if let Some(error) = answer.get("error") {
            bail!("{request}: {error}");
        }
        Ok(answer["result"].take())
    }
}
