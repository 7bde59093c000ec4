//! A data thread: an OS thread with a loop of its own that owns its connections.

use super::{
    acceptor::AddressCount,
    connection,
    event_loop::{Duty, EventLoop, Inlet, Tasks, TimerHandle},
    native::generation::Generation,
    server::{Plane, ServerShared},
};
use crate::ha::connections::Registered;
use std::{
    io,
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// How often a data thread shows that it still runs.
const TICK: Duration = Duration::from_millis(100);

/// The handle of a data thread. When it is dropped the thread ends and closes its connections.
pub(super) struct DataThread {
    /// `None` only while it is being dropped.
    inlet: Option<Inlet<Handed>>,
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
    pub(super) fn start(
        name: String,
        index: usize,
        shared: Arc<ServerShared>,
        timers: TimerHandle,
    ) -> io::Result<DataThread> {
        let state = Arc::new(ThreadState::default());
        state.tick.store(shared.clock.now().as_millis(), Ordering::Relaxed);
        let (event_loop, inlet) = EventLoop::new(TICK)?;
        let mut work = Work { index, state: state.clone(), shared };
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            super::telemetry::enter(index);
            work.shared.options.plane.listener(index).enter();
            if let Err(error) = event_loop.run(&timers, &mut work) {
                // Without a tick nobody hands it connections, and the self-probe says why.
                tracing::error!(%error, "a data thread has ended");
            }
        })?;
        Ok(DataThread { inlet: Some(inlet), state, thread: Some(thread) })
    }

    /// Gives the thread a connection. If the thread has ended the connection closes.
    pub(super) fn hand(&self, handed: Handed) {
        self.state.connections.fetch_add(1, Ordering::Relaxed);
        if !self.inlet.as_ref().is_some_and(|inlet| inlet.send(handed)) {
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
        // That ends the loop, which then drops every connection.
        self.inlet = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread does.
struct Work {
    index: usize,
    state: Arc<ThreadState>,
    shared: Arc<ServerShared>,
}

/// Counts a connection of the thread down when dropped, however it ends.
struct Owned(Arc<ThreadState>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Duty<Handed> for Work {
    fn take(&mut self, handed: Handed, tasks: &mut Tasks) {
        let Handed { stream, peer, generation, count } = handed;
        let owned = Owned(self.state.clone());
        // Who aborts every connection reaches those that are registered by then, and none without a permit comes after.
        if !self.shared.permit.held() && !self.shared.permit.is_holding() {
            return;
        }
        let shared = self.shared.clone();
        let served = tasks.serve(stream, |stream, spawner| async move {
            let _owned = (owned, count);
            connection::serve(stream, peer, generation, shared, spawner).await;
        });
        if let Err(error) = served {
            tracing::debug!(%peer, %error, "connection cannot be served");
        }
    }

    fn tick(&mut self) {
        if self.shared.options.plane == Plane::Main {
            self.shared.service.info().faults.in_data_thread(self.index);
        }
        self.state.tick.store(self.shared.clock.now().as_millis(), Ordering::Relaxed);
    }
}
