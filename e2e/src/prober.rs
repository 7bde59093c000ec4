//! Sends a mutation to the RPC port of every pod every 50 ms, and a Ping through the Service, and remembers each answer.

use crate::{clock::Moment, epochs::Answer, gap::Sample, netns};
use anyhow::{Context as _, anyhow};
use mooncake_proto::v1::{
    PingRequest, PutRevokeRequest, PutStartRequest, Uuid, master_service_client::MasterServiceClient,
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    net::{IpAddr, SocketAddr},
    rc::Rc,
    thread::JoinHandle,
    time::Duration,
};
use tokio::sync::{oneshot, watch};
use tonic::transport::{Channel, Endpoint};

/// Time between two requests to the same pod.
pub const PERIOD: Duration = Duration::from_millis(50);
/// No prober outlives this, whatever becomes of its scenario.
const LONGEST: Duration = Duration::from_secs(600);
/// After this a request counts as not answered.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Every answer carries the epoch of the master under this name.
const EPOCH: &str = "mooncake-epoch";
/// Nobody else calls itself this.
const PROBER: Uuid = Uuid { first: 0x7072_6f62_6572, second: 1 };

/// What was seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// Mutations that were answered.
    pub answers: Vec<Answer>,
    /// Mutations that were not.
    pub unanswered: usize,
    /// Pings through the Service.
    pub pings: Vec<Sample>,
    /// An answer that breaks the protocol, such as one without an epoch.
    pub broken: Option<String>,
}

/// The prober, running until [`Prober::finish`].
#[derive(Debug)]
pub struct Prober {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<anyhow::Result<Seen>>,
}

impl Prober {
    /// Starts probing the pods that `pods` names at each moment, on `port`, and the Service at `service`.
    pub fn start(
        pods: watch::Receiver<BTreeMap<String, IpAddr>>,
        port: u16,
        service: SocketAddr,
    ) -> anyhow::Result<Prober> {
        let (stop, stopped) = oneshot::channel();
        let thread = netns::spawn("prober", async move || probe(pods, port, service, stopped).await)?;
        Ok(Prober { stop, thread })
    }

    /// Ends it, and says what it saw.
    pub async fn finish(self) -> anyhow::Result<Seen> {
        drop(self.stop);
        let seen = tokio::task::spawn_blocking(|| self.thread.join())
            .await?
            .map_err(|_| anyhow!("the prober's thread panicked"))??;
        if let Some(broken) = &seen.broken {
            return Err(anyhow!("{broken}"));
        }
        Ok(seen)
    }
}

async fn probe(
    pods: watch::Receiver<BTreeMap<String, IpAddr>>,
    port: u16,
    service: SocketAddr,
    mut stopped: oneshot::Receiver<()>,
) -> Seen {
    let seen = Rc::new(RefCell::new(Seen::default()));
    let mut clients: HashMap<SocketAddr, MasterServiceClient<Channel>> = HashMap::new();
    let mut tick = tokio::time::interval(PERIOD);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let longest = tokio::time::Instant::now() + LONGEST;
    let mut number = 0_u64;
    while tokio::time::Instant::now() < longest {
        tokio::select! {
            // The sender is dropped, not used: either way it is over.
            _ = &mut stopped => break,
            _ = tick.tick() => {}
        }
        number += 1;
        let client = clients.entry(service).or_insert_with(|| client_of(service)).clone();
        tokio::task::spawn_local(ping(client, seen.clone()));
        for (pod, ip) in pods.borrow().iter() {
            let address = SocketAddr::new(*ip, port);
            let client = clients.entry(address).or_insert_with(|| client_of(address)).clone();
            tokio::task::spawn_local(mutate(client, pod.clone(), number, seen.clone()));
        }
    }
    // What is still under way could only be answered by somebody who should not answer any more: wait for it.
    let end = tokio::time::Instant::now() + TIMEOUT;
    while Rc::strong_count(&seen) > 1 && tokio::time::Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    seen.take()
}

fn client_of(address: SocketAddr) -> MasterServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .unwrap_or_else(|error| unreachable!("an address is a valid authority: {error}"))
        .connect_timeout(Duration::from_millis(500))
        .timeout(TIMEOUT);
    MasterServiceClient::new(endpoint.connect_lazy())
}

async fn ping(mut client: MasterServiceClient<Channel>, seen: Rc<RefCell<Seen>>) {
    let began = Moment::now();
    let answer = client.ping(PingRequest { client_id: Some(PROBER) }).await;
    let sample = Sample { began, ended: Moment::now(), answered: answer.is_ok() };
    seen.borrow_mut().pings.push(sample);
}

/// Reserves one byte, the very thing that two actives at a time must never both do, and gives it back. Whether there
/// was memory does not matter: a refusal is an answer from the master's state, too.
async fn mutate(mut client: MasterServiceClient<Channel>, pod: String, number: u64, seen: Rc<RefCell<Seen>>) {
    let key = format!("prober-{pod}-{number}");
    let request = PutStartRequest {
        client_id: Some(PROBER),
        key: key.clone(),
        slice_length: 1,
        ..PutStartRequest::default()
    };
    let sent = Moment::now();
    let answer = client.put_start(request).await;
    let received = Moment::now();
    match answer {
        Ok(answer) => {
            match epoch_of(answer.metadata()) {
                Ok(epoch) => seen.borrow_mut().answers.push(Answer { pod, sent, received, epoch }),
                Err(error) => seen.borrow_mut().broken = Some(format!("{pod}: {error:#}")),
            }
            if !answer.get_ref().replicas.is_empty() {
                let request =
                    PutRevokeRequest { client_id: Some(PROBER), key, ..PutRevokeRequest::default() };
                // Lost with the master that dies in between; the reservation ends by itself then.
                let _ = client.put_revoke(request).await;
            }
        }
        Err(_) => seen.borrow_mut().unanswered += 1,
    }
}

fn epoch_of(metadata: &tonic::metadata::MetadataMap) -> anyhow::Result<u64> {
    let value = metadata.get(EPOCH).with_context(|| format!("an answer without {EPOCH}"))?;
    value.to_str()?.parse().with_context(|| format!("{EPOCH}: {value:?} is no number"))
}
