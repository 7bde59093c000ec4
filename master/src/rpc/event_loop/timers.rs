//! The time of the loops: sleeps of their tasks end by a thread that does hardly anything else. (What a library spawns by
//! itself runs there, too: the answers to gRPC reflection.)

use std::{io, thread::JoinHandle};
use tokio::{
    runtime::{Builder, EnterGuard, Handle},
    sync::oneshot,
};

/// A runtime with timers only. What is created by a thread that has [entered](TimerHandle::enter) it may sleep.
pub(in crate::rpc) struct Timers {
    handle: Handle,
    /// Dropped first: it ends the thread.
    _stop: oneshot::Sender<()>,
    _thread: Joined,
}

struct Joined(Option<JoinHandle<()>>);

impl Timers {
    pub(in crate::rpc) fn start(name: String) -> io::Result<Timers> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            // An error is the end, too: that the other side was dropped.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Timers { handle, _stop: stop, _thread: Joined(Some(thread)) })
    }

    pub(in crate::rpc) fn handle(&self) -> TimerHandle {
        TimerHandle(self.handle.clone())
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

/// Gives a thread the timers.
pub(in crate::rpc) struct TimerHandle(Handle);

impl TimerHandle {
    /// For as long as the guard lives, what the calling thread creates may sleep.
    pub(super) fn enter(&self) -> EnterGuard<'_> {
        self.0.enter()
    }
}
