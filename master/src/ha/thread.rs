//! The lease thread.

#[cfg(feature = "kubernetes")]
mod duties;
mod handing_over;

use super::{
    Backend, HaError, HaOptions, HaState, Leader, Parts, Promotion, Told, handover::Handover, process,
    signals::Signals, tenure::Tenure,
};
use crate::clock::Instant;
use mooncake_lease::{Command, Event, solo};
use std::{
    cell::{Cell, RefCell},
    future::Future,
    time::Duration,
};
use tokio::sync::{Notify, mpsc};

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Exit,
    /// Starts anew and leaves the lease to others for a while.
    ExecReluctant,
}

/// What the rest of the process is asked for.
pub(super) struct Asked {
    pub(super) promotions: mpsc::UnboundedSender<Promotion>,
    pub(super) shutdown: mpsc::UnboundedSender<()>,
}

/// What the parts of the lease thread share. All on one thread.
struct State {
    parts: Parts,
    options: HaOptions,
    commands: mpsc::UnboundedSender<Command>,
    asked: Asked,
    /// Until when the rest of the process may close what serves, once it was asked to.
    closing: Cell<Option<Instant>>,
    tenure: RefCell<Option<Tenure>>,
    /// The permit that the lease gives; the serving permit follows it once nothing holds serving back.
    lease: Cell<Option<(u64, Instant)>>,
    ending: Cell<Option<(Ending, Instant)>>,
    handover: RefCell<Option<Handover>>,
    changed: Notify,
}

/// A lease thread that unwinds would leave a process that nothing fences and nothing ends.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// How long a process without a Lease may take to close its ports and to finish what is being offboarded (10 s).
const CLOSING: Duration = Duration::from_millis(10_500);

/// Longest sleep, so that a clock that runs differently from the runtime's timer is never far off.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

pub(super) fn start(
    options: HaOptions,
    parts: Parts,
    incarnation: &str,
    asked: Asked,
    told: mpsc::UnboundedReceiver<Told>,
) -> Result<(), HaError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = {
        let _inside = runtime.enter();
        Signals::new()?
    };
    let (commands, receiver) = mpsc::unbounded_channel();
    let state = State {
        parts,
        options,
        commands,
        asked,
        closing: Cell::new(None),
        tenure: RefCell::new(None),
        lease: Cell::new(None),
        ending: Cell::new(None),
        handover: RefCell::new(None),
        changed: Notify::new(),
    };
    // Everything that can be wrong with the surroundings is found before the thread starts.
    #[cfg(feature = "kubernetes")]
    let lease = match &state.options.backend {
        Backend::Solo => None,
        Backend::Lease(lease) => {
            Some(runtime.block_on(duties::Lease::prepare((**lease).clone(), incarnation, &state))?)
        }
    };
    #[cfg(not(feature = "kubernetes"))]
    tracing::debug!(incarnation, "no Lease to hold");
    std::thread::Builder::new().name("lease".into()).spawn(move || {
        let _bomb = AbortOnUnwind;
        runtime.block_on(async {
            #[cfg(feature = "kubernetes")]
            if let Some(lease) = lease {
                return Box::pin(run(&state, &signals, told, lease.run(&state, receiver))).await;
            }
            state.parts.role.set_state(HaState::Standby);
            run(&state, &signals, told, solo::run(receiver, |event| state.on_event(event))).await;
        });
    })?;
    Ok(())
}

/// Runs until the process ends; `election` returns when it is over.
async fn run(
    state: &State,
    signals: &Signals,
    told: mpsc::UnboundedReceiver<Told>,
    election: impl Future<Output = ()>,
) {
    tokio::select! {
        () = election => state.finish(),
        () = state.supervise(signals, told) => {}
    }
}

impl State {
    fn now(&self) -> Instant {
        self.parts.clock.now()
    }

    /// Whether the lease is held at this moment, in this epoch, by a process that is not about to end.
    #[cfg(feature = "kubernetes")]
    fn holds(&self, epoch: u64) -> bool {
        self.ending.get().is_none()
            && self.lease.get().is_some_and(|(held, until)| held == epoch && self.now() < until)
    }

    fn on_event(&self, event: Event) {
        match event {
            Event::Elected { epoch, kept: true, .. } => {
                if let Some(tenure) = &mut *self.tenure.borrow_mut() {
                    tenure.epoch = epoch;
                }
            }
            Event::Elected { epoch, kept: false, previous_read_lease_ttl } => {
                let promotion = Promotion { epoch, previous_read_lease_ttl };
                let labels = self.writes_labels();
                let tenure = Tenure::new(self.now(), promotion, labels, self.options.deadlines);
                *self.tenure.borrow_mut() = Some(tenure);
                self.parts.role.set_state(HaState::LeaderWarmup);
                log(move || tracing::info!(epoch, "elected"));
            }
            Event::Permit { epoch, until } => {
                self.permit_is_back();
                self.lease.set(Some((epoch, Instant::from_nanos(until.as_nanos()))));
                if let Some(tenure) = &mut *self.tenure.borrow_mut() {
                    tenure.permit_given(self.now());
                }
                self.serve();
            }
            Event::PermitEnded => {
                let ended = self.lease.take().map_or(self.now(), |(_, until)| until.min(self.now()));
                if !self.has_handed_over() {
                    self.fence();
                }
                if let Some(tenure) = &mut *self.tenure.borrow_mut() {
                    tenure.permit_ended(ended);
                }
                self.parts.role.set_state(HaState::Candidate);
            }
            Event::Designated { successor } => self.begin_handover(successor),
            Event::Lost { reason } if self.is_succeeded(&reason) => {
                // It stands by only once it has started anew: until then it cannot claim.
                self.parts.role.set_state(HaState::Candidate);
                log(move || tracing::info!(%reason, "the role is handed over"));
            }
            Event::Lost { reason } => {
                self.lease.set(None);
                self.fence();
                if self.ending.get().is_some() {
                    self.finish();
                }
                log(move || tracing::warn!(%reason, "leadership lost, starting anew"));
                self.exec(None);
            }
            // The election ends with it, and with the election the process.
            Event::Released => self.lease.set(None),
            Event::Leader(leader) => {
                let leader = leader.map(|leader| Leader { address: leader.address, epoch: leader.epoch });
                self.parts.role.set_leader(leader);
            }
        }
        self.changed.notify_waiters();
    }

    /// It takes part like everybody from now on; unless, alone, it has claimed already.
    #[cfg(feature = "kubernetes")]
    fn end_reluctance(&self) {
        if self.tenure.borrow().is_none() && self.ending.get().is_none() {
            self.parts.role.set_state(HaState::Standby);
        }
    }

    fn writes_labels(&self) -> bool {
        match &self.options.backend {
            Backend::Solo => false,
            #[cfg(feature = "kubernetes")]
            Backend::Lease(lease) => lease.pod.is_some(),
        }
    }

    /// Hands the lease's permit on, unless something holds serving back.
    fn serve(&self) {
        let (now, mut tenure) = (self.now(), self.tenure.borrow_mut());
        let (Some(tenure), Some((epoch, until)), None) = (&mut *tenure, self.lease.get(), self.ending.get())
        else {
            return;
        };
        if !tenure.may_serve(now) {
            return;
        }
        self.parts.permit.extend(epoch, until);
        if let Some(promotion) = tenure.take_promotion(now) {
            // Who carries promotions out ends only with the process.
            let _ = self.asked.promotions.send(promotion);
        }
        let state = if tenure.promoted() { HaState::Serving } else { HaState::LeaderWarmup };
        self.parts.role.set_state(state);
    }

    /// Answers nothing from now on: no permit, no connection. Asks no other thread. A hand-over ends with it.
    fn fence(&self) {
        self.parts.permit.revoke();
        self.parts.connections.abort_all();
        if self.handover.borrow_mut().take().is_some() {
            self.parts.permit.end_hold();
        }
    }

    /// Fences, releases the lease and ends the process, within `bound`.
    fn end(&self, ending: Ending, bound: Duration) {
        if matches!(self.ending.get(), Some((Ending::Exit, _))) {
            return;
        }
        self.fence();
        self.parts.role.set_state(HaState::Standby);
        self.lease.set(None);
        self.ending.set(Some((ending, self.now().saturating_add(bound))));
        // Its receiver is gone only when the election is over, which ends the process by itself.
        let _ = self.commands.send(Command::Resign { successor: None });
    }

    /// A signal asks for the end. A process that serves without a Lease closes first, unless it is asked again.
    fn told_to_end(&self, signal: i32) {
        let serves = self.tenure.borrow().as_ref().is_some_and(Tenure::promoted);
        let is_alone = matches!(self.options.backend, Backend::Solo);
        if is_alone && serves && self.closing.get().is_none() && self.ending.get().is_none() {
            self.closing.set(Some(self.now().saturating_add(CLOSING)));
            // Its receiver is gone only with the process.
            let _ = self.asked.shutdown.send(());
            log(move || {
                tracing::info!(
                    signal,
                    "ending: the ports close, what is being offboarded is finished, 10 s at most"
                );
            });
            return;
        }
        self.end(Ending::Exit, self.options.deadlines.shutdown);
        log(move || tracing::info!(signal, "ending: connections closed, releasing the lease"));
    }

    /// Ends the process the way it was decided.
    fn finish(&self) {
        match self.ending.get() {
            Some((Ending::Exit, _)) => process::exit(0),
            Some((Ending::ExecReluctant, _)) => {
                let until = self.now().saturating_add(self.reluctance());
                self.exec(Some(until.as_nanos()));
            }
            // The election is over although nobody asked: it could not run at all, and has said why.
            None => process::exit(1),
        }
    }

    /// How long a holder that did not get to serve leaves the lease to others.
    fn reluctance(&self) -> Duration {
        match &self.options.backend {
            Backend::Solo => Duration::ZERO,
            #[cfg(feature = "kubernetes")]
            Backend::Lease(lease) => 3 * lease.timings.lease_duration(),
        }
    }

    fn exec(&self, reluctant_until_ns: Option<u64>) -> ! {
        self.fence();
        let error = process::exec_self(reluctant_until_ns);
        // Better no process than one that answers from a memory that is no longer the cluster's.
        log(move || tracing::error!(%error, "cannot start anew"));
        process::exit(1);
    }

    async fn supervise(&self, signals: &Signals, mut told: mpsc::UnboundedReceiver<Told>) {
        let mut talking = true;
        loop {
            let now = self.now();
            if let Some((_, at)) = self.ending.get() {
                if at <= now {
                    self.finish();
                }
            } else if self.closing.get().is_some_and(|at| at <= now) {
                self.end(Ending::Exit, self.options.deadlines.shutdown);
            } else {
                self.serve();
                self.check(now);
                self.go_on_with_handover(now);
            }
            let ending = self.ending.get().map(|(_, at)| at);
            let next = ending.or_else(|| self.next(now));
            let sleep = next.map_or(LONGEST_SLEEP, |at| {
                at.saturating_since(self.now()).min(LONGEST_SLEEP) + Duration::from_millis(1)
            });
            tokio::select! {
                biased;
                signal = signals.next() => self.told_to_end(signal),
                what = told.recv(), if talking => match what {
                    Some(Told::Failed) => self.end(Ending::ExecReluctant, 2 * LONGEST_SLEEP),
                    Some(Told::Closed) => self.end(Ending::Exit, self.options.deadlines.shutdown),
                    Some(what) => self.take_word(what),
                    None => talking = false,
                },
                () = self.changed.notified() => {}
                () = tokio::time::sleep(sleep) => {}
            }
        }
    }

    /// When something is due that nothing else wakes this thread for.
    fn next(&self, now: Instant) -> Option<Instant> {
        let tenure = self.tenure.borrow().as_ref().and_then(|tenure| tenure.next(now));
        let handover = self.handover.borrow().as_ref().and_then(|handover| handover.next(now));
        [tenure, handover, self.closing.get()].into_iter().flatten().min()
    }

    fn take_word(&self, what: Told) {
        let (now, mut tenure) = (self.now(), self.tenure.borrow_mut());
        let Some(tenure) = &mut *tenure else { return };
        match what {
            Told::Progress => tenure.progress(now),
            Told::Promoted => tenure.set_promoted(),
            Told::FirstProbeOk => tenure.set_probed(),
            Told::Failed | Told::Closed => {}
        }
    }

    /// A holder that does not get to serve gives the lease up. Without the permit there is nothing to give up, and
    /// alone there is nobody to give it to.
    fn check(&self, now: Instant) {
        let failure = self.tenure.borrow().as_ref().and_then(|tenure| tenure.failure(now));
        if let (Some(failure), Some((epoch, until))) = (failure, self.lease.get())
            && now < until
            && !matches!(self.options.backend, Backend::Solo)
        {
            log(move || tracing::error!(epoch, reason = %failure, "giving the lease up and starting anew"));
            self.end(Ending::ExecReluctant, 2 * LONGEST_SLEEP);
        }
    }
}

/// Logs from a thread of its own: a log that nobody reads must not keep this one from fencing and ending the process.
fn log(line: impl FnOnce() + Send + 'static) {
    // Without a thread to spare the line is lost, and nothing else.
    let _ = std::thread::Builder::new().name("lease-log".into()).spawn(line);
}
