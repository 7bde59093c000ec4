//! One process-wide byte budget for received, decoded and unsent bytes (design §3).

use crate::lock::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

/// Frames up to this size may use the whole budget; larger ones leave a quarter of it to the small ones, so that
/// slow senders of large frames never starve ordinary calls. It is what a connection receives before its frame is
/// reserved whole: declaring a size costs a sender nothing, so nothing that is merely declared may take the last quarter.
const LARGE: usize = 8 << 10;

/// The budget. Memory is bounded in sum, not per frame: over the budget a connection is simply not read.
///
/// Invariant: `used` is the sum of all live [`Reservation`]s. Growth by [`Reservation::try_grow`] never takes it over
/// the limit; only [`Reservation::force`] may, for answers that already exist, and then nobody reads until it sank.
#[derive(Debug)]
pub struct Budget {
    used: AtomicUsize,
    limit: usize,
    waiting: Mutex<Vec<Waker>>,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Budget> {
        Arc::new(Budget { used: AtomicUsize::new(0), limit, waiting: Mutex::new(Vec::new()) })
    }

    /// Bytes reserved now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The limit, bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// An empty reservation.
    pub fn reservation(self: &Arc<Self>) -> Reservation {
        Reservation { budget: self.clone(), held: 0 }
    }

    fn wake(&self) {
        // Taken out first: a waker may run code that reserves again.
        let woken = std::mem::take(&mut *self.waiting.lock());
        for waker in woken {
            waker.wake();
        }
    }
}

/// A part of the budget, given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    held: usize,
}

impl Reservation {
    /// An empty reservation of the same budget.
    #[must_use]
    pub fn sibling(&self) -> Reservation {
        self.budget.reservation()
    }

    /// Bytes held.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Grows to `to` bytes if the budget allows it. `frame` is the size of the frame that is being received.
    pub fn try_grow(&mut self, to: usize, frame: usize) -> bool {
        if to <= self.held {
            return true;
        }
        let limit = if frame > LARGE { self.budget.limit / 4 * 3 } else { self.budget.limit };
        let more = to - self.held;
        let grown = self.budget.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(more).filter(|&sum| sum <= limit)
        });
        if grown.is_ok() {
            self.held = to;
        }
        grown.is_ok()
    }

    /// As [`Self::try_grow`]; when the budget does not allow it the task is woken once something was given back.
    pub fn poll_grow(&mut self, to: usize, frame: usize, cx: &mut Context<'_>) -> Poll<()> {
        if self.try_grow(to, frame) {
            return Poll::Ready(());
        }
        self.budget.waiting.lock().push(cx.waker().clone());
        // Somebody may have given back between the attempt and the registration.
        if self.try_grow(to, frame) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Sets the reservation for bytes that exist already, up or down.
    pub fn force(&mut self, to: usize) {
        if to >= self.held {
            self.budget.used.fetch_add(to - self.held, Ordering::Relaxed);
            self.held = to;
        } else {
            self.shrink(to);
        }
    }

    /// Gives back all but `to` bytes.
    pub fn shrink(&mut self, to: usize) {
        if to < self.held {
            self.budget.used.fetch_sub(self.held - to, Ordering::Relaxed);
            self.held = to;
            self.budget.wake();
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Wake;

    #[test]
    fn large_frames_leave_room_for_small_ones() {
        let budget = Budget::new(8 << 20);
        let mut large = budget.reservation();
        assert!(large.try_grow(6 << 20, 64 << 20));
        assert!(!large.try_grow((6 << 20) + 1, 64 << 20));
        let mut small = budget.reservation();
        // A MiB is large, too: it may be no more than declared.
        let mut medium = budget.reservation();
        assert!(!medium.try_grow(1 << 20, 1 << 20));
        assert!(small.try_grow(1 << 20, LARGE));
        assert!(small.try_grow(2 << 20, LARGE));
        assert!(!small.try_grow((2 << 20) + 1, LARGE));
        drop((large, medium, small));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_waiter_is_woken_when_something_is_given_back() {
        struct Flag(AtomicUsize);
        impl Wake for Flag {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let budget = Budget::new(100);
        let mut held = budget.reservation();
        held.force(150);
        let flag = Arc::new(Flag(AtomicUsize::new(0)));
        let waker = Waker::from(flag.clone());
        let mut waiting = budget.reservation();
        assert!(waiting.poll_grow(1, 1, &mut Context::from_waker(&waker)).is_pending());
        held.shrink(0);
        assert_eq!(flag.0.load(Ordering::SeqCst), 1);
        assert!(waiting.poll_grow(1, 1, &mut Context::from_waker(&waker)).is_ready());
    }
}
