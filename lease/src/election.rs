//! An election for a process that only wants to know whether it leads (the operator): a thread of its own, a permit that
//! can be asked at any time, and the process's own way out when the lease is lost.

use crate::{
    driver::{self, DriverConfig, DriverError},
    elector::{Command, Event, Leader},
    time::{Clock, Instant},
};
use rand::Rng;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc as sync_mpsc,
    },
    thread,
    time::Duration,
};
use tokio::sync::{mpsc, watch};

/// A new incarnation id: 128 random bits in hexadecimal.
pub fn random_incarnation() -> String {
    format!("{:032x}", rand::rng().random::<u128>())
}

/// What can be seen of an election.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// Whether a permit was given and has not ended; [`Election::is_leader`] asks the clock as well.
    pub leading: bool,
    /// The own epoch, 0 before the first.
    pub epoch: u64,
    /// Who leads, as far as it can be seen.
    pub leader: Option<Leader>,
}

/// Taking part in an election. Dropping it ends the participation without releasing the lease.
pub struct Election {
    until: Arc<AtomicU64>,
    clock: Arc<dyn Clock>,
    standing: watch::Receiver<Standing>,
    commands: mpsc::UnboundedSender<Command>,
    ended: sync_mpsc::Receiver<()>,
}

impl Election {
    /// Starts the thread. `on_lost` is called on it when the lease is lost for good (or when no client for the API server
    /// can be made) and usually ends the process; until then nobody else leads for longer than the permit lasts.
    pub fn start(
        config: DriverConfig,
        clock: Arc<dyn Clock>,
        on_lost: impl FnOnce(String) + Send + 'static,
    ) -> io::Result<Election> {
        let until = Arc::new(AtomicU64::new(0));
        let (sender, standing) = watch::channel(Standing::default());
        let (commands, receiver) = mpsc::unbounded_channel();
        let (ended_sender, ended) = sync_mpsc::channel();
        let (permit, thread_clock) = (until.clone(), clock.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("lease".into()).spawn(move || {
            let mut lost = None;
            let result =
                runtime.block_on(driver::run(config, &*thread_clock, receiver, |event| match event {
                    Event::Permit { epoch, until } => {
                        permit.store(until.as_nanos(), Ordering::Release);
                        sender.send_if_modified(|standing| {
                            let changed = !standing.leading || standing.epoch != epoch;
                            (standing.leading, standing.epoch) = (true, epoch);
                            changed
                        });
                    }
                    Event::PermitEnded | Event::Released => {
                        permit.store(0, Ordering::Release);
                        sender.send_if_modified(|standing| std::mem::take(&mut standing.leading));
                    }
                    Event::Lost { reason } => lost = Some(reason.to_string()),
                    Event::Leader(leader) => sender.send_modify(|standing| standing.leader = leader),
                    // Nothing is worth handing over here: who leads next starts from what the API server says.
                    Event::Elected { .. } | Event::Designated { .. } => {}
                }));
            permit.store(0, Ordering::Release);
            // Nobody waits for it unless it resigns.
            let _ = ended_sender.send(());
            if let Some(reason) = lost.or_else(|| result.err().map(|error: DriverError| error.to_string())) {
                on_lost(reason);
            }
        })?;
        Ok(Election { until, clock, standing, commands, ended })
    }

    /// Whether this process may act as the leader at this very moment.
    pub fn is_leader(&self) -> bool {
        self.clock.now() < Instant::from_nanos(self.until.load(Ordering::Acquire))
    }

    /// Changes of the standing.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// Gives the lease up for anyone and waits, at most so long, until that is carried out.
    pub fn resign(self, wait: Duration) -> bool {
        let asked = self.commands.send(Command::Resign { successor: None }).is_ok();
        asked && self.ended.recv_timeout(wait).is_ok()
    }
}
