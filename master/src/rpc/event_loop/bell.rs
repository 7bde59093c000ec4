//! How a loop that sleeps in `epoll_wait` is woken, from any thread.

use crate::lock::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Wake,
};

/// What is to be done apart from what the network asks for.
///
/// Invariant: after [`Bell::ring`] the loop does not sleep before it has looked. Who rings sets `rung` and then reads
/// `sleeping`; the loop sets `sleeping` and then reads `rung`: in the one order of all four at least one of them sees
/// the other. Only who finds the loop asleep makes a system call.
#[derive(Debug)]
pub(super) struct Bell {
    /// Tasks that were woken, each once.
    woken: Mutex<Vec<usize>>,
    rung: AtomicBool,
    sleeping: AtomicBool,
    event: OwnedFd,
}

impl Bell {
    pub(super) fn new() -> io::Result<Bell> {
        Ok(Bell {
            woken: Mutex::default(),
            rung: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// The loop should look.
    pub(super) fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst) {
            // It can fail only when the counter is full, and then it is readable already.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    fn wake(&self, task: usize) {
        self.woken.lock().push(task);
        self.ring();
    }

    /// The loop is about to sleep; false if it must not.
    pub(super) fn may_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        let may = !self.rung.load(Ordering::SeqCst);
        if !may {
            self.awake();
        }
        may
    }

    /// The loop no longer sleeps.
    pub(super) fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Whether it was rung since the last look. What was rung for before is seen by what the loop looks at now.
    pub(super) fn look(&self) -> bool {
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::SeqCst)
    }

    /// Moves the woken tasks to `into`, which is empty.
    pub(super) fn take(&self, into: &mut Vec<usize>) {
        std::mem::swap(&mut *self.woken.lock(), into);
    }

    /// Somebody wrote because the loop was asleep.
    pub(super) fn silence(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Wakes one task. A waker that outlives its task wakes whoever has that number then, who finds nothing to do.
#[derive(Debug)]
pub(super) struct TaskWaker {
    bell: Arc<Bell>,
    task: usize,
    is_woken: AtomicBool,
}

impl TaskWaker {
    pub(super) fn new(bell: Arc<Bell>, task: usize) -> TaskWaker {
        TaskWaker { bell, task, is_woken: AtomicBool::new(false) }
    }

    /// It is polled now: whoever wakes it from here on does so anew. A swap, so that what was done before a wake-up that
    /// found it woken already is seen by this poll.
    pub(super) fn served(&self) {
        self.is_woken.swap(false, Ordering::SeqCst);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::SeqCst) {
            self.bell.wake(self.task);
        }
    }
}
