//! Pages that look into the store. The control thread must not: these run on a few threads of their own, bounded in number
//! and in time, and whoever finds them busy gets a 503.

mod json;
mod pages;

pub(super) use pages::router;

use crate::{
    clock::{Clock, Instant},
    core::Core,
    lock::Mutex,
    permit::ServingPermit,
    types::{Attempt, OpError, Walk},
};
use std::{
    fmt, io,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::Duration,
};
use tokio::sync::oneshot;

/// Threads that look into the store for admin pages.
const THREADS: usize = 2;
/// Looks that may wait for a thread; more are refused at once.
const WAITING: usize = 32;
/// Of one look, from the request on.
const TIME: Duration = Duration::from_secs(2);
/// How long a look waits before it tries a held shard again.
const PAUSE: Duration = Duration::from_millis(1);

/// Why a page has no answer; all of these are 503.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum LookError {
    /// A standby has no store.
    #[error("service plane is not active")]
    NotServing,
    /// Too many others look already.
    #[error("too many requests look into the store; try again")]
    Busy,
    /// It took longer than two seconds.
    #[error("the store did not answer within 2 s")]
    TimedOut,
    /// The answer would take too much memory.
    #[error("the answer is too large")]
    TooLarge,
}

type Job = Box<dyn FnOnce() + Send>;

/// The store of the present promotion, for admin pages; empty on a standby.
#[derive(Debug, Default)]
pub struct StoreAccess(Mutex<Option<Arc<Open>>>);

struct Open {
    core: Arc<Core>,
    permit: Arc<ServingPermit>,
    clock: Arc<dyn Clock>,
    jobs: SyncSender<Job>,
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").finish_non_exhaustive()
    }
}

/// One look under way: the store, and how long it may still take.
pub(super) struct Look<'a> {
    pub(super) core: &'a Core,
    permit: &'a ServingPermit,
    clock: &'a dyn Clock,
    deadline: Instant,
}

impl Look<'_> {
    /// Whether it may go on.
    pub(super) fn check(&self) -> Result<(), LookError> {
        if !self.permit.held() {
            return Err(LookError::NotServing);
        }
        if self.clock.now() >= self.deadline { Err(LookError::TimedOut) } else { Ok(()) }
    }

    /// A call of the core, again and again while its shard is held.
    pub(super) fn call<T>(
        &self,
        mut call: impl FnMut() -> Attempt<T>,
    ) -> Result<Result<T, crate::error::ErrorCode>, LookError> {
        loop {
            self.check()?;
            match call() {
                Ok(value) => return Ok(Ok(value)),
                Err(OpError::Failed(code)) => return Ok(Err(code)),
                Err(OpError::Busy { .. }) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// A walk over all shards.
    pub(super) fn walk(&self, mut step: impl FnMut() -> Attempt<Walk>) -> Result<(), LookError> {
        // A walk is refused only for its arguments, which have none here that could be wrong.
        while self.call(&mut step)? == Ok(Walk::More) {}
        Ok(())
    }
}

impl StoreAccess {
    /// Opens the store to the pages; the threads that serve them end when it is closed or opened anew.
    pub fn open(&self, core: Arc<Core>, permit: Arc<ServingPermit>, clock: Arc<dyn Clock>) -> io::Result<()> {
        let (jobs, waiting) = sync_channel::<Job>(WAITING);
        let waiting = Arc::new(Mutex::new(waiting));
        for n in 0..THREADS {
            let waiting = waiting.clone();
            std::thread::Builder::new().name(format!("admin-store-{n}")).spawn(move || serve(&waiting))?;
        }
        *self.0.lock() = Some(Arc::new(Open { core, permit, clock, jobs }));
        Ok(())
    }

    /// Closes it.
    pub fn close(&self) {
        *self.0.lock() = None;
    }

    /// Runs `look` on one of the threads.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Look<'_>) -> Result<T, LookError> + Send + 'static,
    ) -> Result<T, LookError> {
        let open = self.0.lock().clone().filter(|open| open.permit.held()).ok_or(LookError::NotServing)?;
        let deadline = open.clock.now().saturating_add(TIME);
        let (answer, answered) = oneshot::channel();
        let within = open.clone();
        let job: Job = Box::new(move || {
            let (core, permit, clock) = (&*within.core, &*within.permit, &*within.clock);
            let at = Look { core, permit, clock, deadline };
            // The one who asked may be gone; and a look whose time was up before its turn costs nothing.
            let _ = answer.send(at.check().and_then(|()| look(&at)));
        });
        open.jobs.try_send(job).map_err(|_| LookError::Busy)?;
        drop(open);
        match tokio::time::timeout(TIME, answered).await {
            Ok(Ok(result)) => result,
            // The thread went with the promotion.
            Ok(Err(_)) => Err(LookError::NotServing),
            Err(_) => Err(LookError::TimedOut),
        }
    }
}

/// Runs jobs until the store is closed.
fn serve(waiting: &Mutex<Receiver<Job>>) {
    loop {
        // Bound to a name of its own, or the lock would be held while the job runs.
        let job = waiting.lock().recv();
        match job {
            Ok(job) => job(),
            Err(_) => return,
        }
    }
}
