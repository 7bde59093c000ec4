//! SIGTERM and SIGINT, handled by the lease thread alone (design §6.8).
//!
//! They are blocked in every thread for the whole life of the process, across an exec of itself, too, and taken from a
//! descriptor. So one that arrives at any moment waits for the lease thread of this image or of the next one.

use rustix::io::Errno;
use std::{
    io,
    mem::MaybeUninit,
    os::fd::{FromRawFd, OwnedFd},
};
use tokio::io::{Interest, unix::AsyncFd};

fn set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initializes the set it is given, the others change an initialized one; none of them fails for
    // a valid pointer and these signal numbers.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
        set.assume_init()
    }
}

/// Blocks them in this thread and in every one that it starts later. To be called first in `main`, before there is
/// another thread.
pub fn block() -> io::Result<()> {
    let set = set();
    // SAFETY: the set is initialized, and the old mask is not asked for.
    let code = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// The descriptor from which the signals are taken.
#[derive(Debug)]
pub(super) struct Signals {
    fd: AsyncFd<OwnedFd>,
}

impl Signals {
    /// Inside the runtime that will wait for them.
    pub(super) fn new() -> io::Result<Signals> {
        let set = set();
        // SAFETY: the set is initialized; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: signalfd returned it just now, so it is open and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: an `OwnedFd` always gives the same open descriptor, and it lives inside the `AsyncFd`.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE)? };
        Ok(Signals { fd })
    }

    /// Waits for the next one and says its number.
    pub(super) async fn next(&self) -> i32 {
        loop {
            let Ok(mut ready) = self.fd.readable().await else {
                // The runtime is shutting down; nothing waits for a signal any more.
                return std::future::pending().await;
            };
            let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
            match rustix::io::read(self.fd.get_ref(), &mut info) {
                // The number is the first field, four bytes.
                Ok(n) if n == info.len() => return i32::from_ne_bytes([info[0], info[1], info[2], info[3]]),
                Ok(_) | Err(Errno::AGAIN) => ready.clear_ready(),
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_signal_waits_for_its_reader() {
        // Blocks the signals in this test's thread only, and raises one for this very thread.
        block().unwrap();
        // SAFETY: raise has no preconditions; the signal is blocked, so no handler runs.
        assert_eq!(unsafe { libc::raise(libc::SIGTERM) }, 0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let number = runtime.block_on(async { Signals::new().unwrap().next().await });
        assert_eq!(number, libc::SIGTERM);
    }
}
