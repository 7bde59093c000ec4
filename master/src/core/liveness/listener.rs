//! Who hears the clients: the threads that own connections.

use std::cell::Cell;

/// A thread through which clients are heard, by a number that the process gives it.
///
/// A record remembers which one heard its client last: time in which that very thread was stuck is not the client's
/// silence (B2), and it is nobody else's excuse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Listener(u16);

thread_local! {
    static CURRENT: Cell<u16> = const { Cell::new(Listener::UNKNOWN.0) };
}

impl Listener {
    /// Every thread that did not [`Listener::enter`]: no stall is ever reported of it alone.
    pub const UNKNOWN: Listener = Listener(u16::MAX);

    /// The listener of that number, which must not be `u16::MAX`.
    pub const fn new(number: u16) -> Listener {
        Listener(number)
    }

    /// What the calling thread hears from now on is heard by this listener.
    pub fn enter(self) {
        CURRENT.set(self.0);
    }

    /// The calling thread's.
    pub(crate) fn current() -> Listener {
        Listener(CURRENT.get())
    }

    pub(crate) fn number(self) -> u16 {
        self.0
    }
}
