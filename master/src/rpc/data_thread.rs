//! A data thread: an OS thread with a current-thread runtime that owns its connections.

use super::{
    acceptor::AddressCount,
    connection,
    native::generation::Generation,
    server::{Plane, ServerShared},
};
use crate::ha::connections::Registered;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::{
    io,
    net::{SocketAddr, TcpStream},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::mpsc,
};

/// How often a data thread shows that it still runs.
const TICK: Duration = Duration::from_millis(100);

/// The handle of a data thread. When it is dropped the thread ends and closes its connections.
pub(super) struct DataThread {
    inbox: mpsc::UnboundedSender<Handed>,
    state: Arc<ThreadState>,
    thread: Option<JoinHandle<()>>,
}

/// A connection on its way to the thread that will own it.
pub(super) struct Handed {
    pub(super) stream: Registered<TcpStream>,
    pub(super) peer: SocketAddr,
    /// Fixed by the listener.
    pub(super) generation: Option<&'static Generation>,
    pub(super) count: Option<AddressCount>,
}

/// What others may see of a data thread.
#[derive(Debug, Default)]
pub struct ThreadState {
    /// Milliseconds of the injected clock at the thread's last tick.
    pub tick: AtomicU64,
    /// Connections it owns.
    pub connections: AtomicUsize,
}

impl DataThread {
    pub(super) fn start(name: String, index: usize, shared: Arc<ServerShared>) -> io::Result<DataThread> {
        let (inbox, outbox) = mpsc::unbounded_channel();
        let state = Arc::new(ThreadState::default());
        state.tick.store(shared.clock.now().as_millis(), Ordering::Relaxed);
        let thread_state = state.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            super::telemetry::enter(index);
            shared.options.plane.listener(index).enter();
            runtime.block_on(run(outbox, index, thread_state, shared));
        })?;
        Ok(DataThread { inbox, state, thread: Some(thread) })
    }

    /// Gives the thread a connection. If the thread has ended the connection closes.
    pub(super) fn hand(&self, handed: Handed) {
        self.state.connections.fetch_add(1, Ordering::Relaxed);
        if self.inbox.send(handed).is_err() {
            self.state.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn tick(&self) -> u64 {
        self.state.tick.load(Ordering::Relaxed)
    }

    pub(super) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }

    pub(super) fn state(&self) -> &Arc<ThreadState> {
        &self.state
    }
}

impl Drop for DataThread {
    fn drop(&mut self) {
        // Closing the inbox ends the loop; the runtime then drops every connection.
        self.inbox = mpsc::unbounded_channel().0;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn timer() -> io::Result<AsyncFd<OwnedFd>> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    let tick = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as i64 };
    let every = Itimerspec { it_interval: tick, it_value: tick };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &every)?;
    // SAFETY: the descriptor is owned by what is registered, which closes it only after it has left the reactor.
    Ok(unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }?)
}

async fn run(
    mut inbox: mpsc::UnboundedReceiver<Handed>,
    index: usize,
    state: Arc<ThreadState>,
    shared: Arc<ServerShared>,
) {
    match timer() {
        Ok(timer) => drop(tokio::spawn(tick(timer, index, state.clone(), shared.clone()))),
        // Without a tick nobody hands it connections, and the self-probe says why.
        Err(error) => return tracing::error!(%error, "no timer for a data thread"),
    }
    while let Some(Handed { stream, peer, generation, count }) = inbox.recv().await {
        let (state, shared) = (state.clone(), shared.clone());
        tokio::spawn(async move {
            let _count = count;
            match stream.try_map(tokio::net::TcpStream::from_std) {
                // Aborting every connection does not reach one that is being converted: look once it is registered again.
                Ok(stream) if shared.permit.held() || shared.permit.is_holding() => {
                    connection::serve(stream, peer, generation, shared).await;
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%peer, %error, "connection cannot be served"),
            }
            state.connections.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Ticks by a descriptor, not by the runtime's timers: as long as these are empty the thread sleeps without a time-out,
/// which would cost the kernel a timer for every single call.
async fn tick(timer: AsyncFd<OwnedFd>, index: usize, state: Arc<ThreadState>, shared: Arc<ServerShared>) {
    // A descriptor whose wait fails is of no use any more; then the thread counts as stuck, which is what it is.
    while let Ok(mut due) = timer.readable().await {
        // Missed ticks come as one. No edge is lost: the next one comes in any case.
        let _ = rustix::io::read(timer.get_ref(), &mut [0; 8]);
        due.clear_ready();
        if shared.options.plane == Plane::Main {
            shared.service.info().faults.in_data_thread(index);
        }
        state.tick.store(shared.clock.now().as_millis(), Ordering::Relaxed);
    }
}
