//! The tasks of a loop.

use super::{
    bell::{Bell, TaskWaker},
    stream::{LoopStream, Readiness},
};
use crate::ha::connections::Registered;
use rustix::event::epoll::{self, EventData, EventFlags};
use slab::Slab;
use std::{
    any::Any,
    cell::RefCell,
    collections::VecDeque,
    future::Future,
    io,
    net::TcpStream,
    os::fd::OwnedFd,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Waker},
};

type Work = Pin<Box<dyn Future<Output = ()>>>;

struct Task {
    work: Work,
    waker: Waker,
    woken: Arc<TaskWaker>,
    /// Of its socket, if it has one.
    readiness: Option<Rc<Readiness>>,
}

/// Begins tasks from within a task of the same loop.
#[derive(Clone, Default)]
pub(in crate::rpc) struct Spawner(Rc<RefCell<VecDeque<Work>>>);

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for Spawner {
    fn execute(&self, future: F) {
        self.0.borrow_mut().push_back(Box::pin(async move {
            future.await;
        }));
    }
}

/// The tasks that one thread owns.
pub(in crate::rpc) struct Tasks {
    slots: Slab<Task>,
    epoll: Arc<OwnedFd>,
    bell: Arc<Bell>,
    /// Tasks that are being run, kept for its memory.
    running: Vec<usize>,
    spawned: Spawner,
}

impl Tasks {
    pub(super) fn new(epoll: Arc<OwnedFd>, bell: Arc<Bell>) -> Tasks {
        Tasks { slots: Slab::new(), epoll, bell, running: Vec::new(), spawned: Spawner::default() }
    }

    /// Begins what `work` makes of the connection, in a task of its own. `work` is given what begins further tasks.
    ///
    /// # Errors
    /// When the kernel does not take the socket, which closes.
    pub(in crate::rpc) fn serve<F: Future<Output = ()> + 'static>(
        &mut self,
        stream: Registered<TcpStream>,
        work: impl FnOnce(LoopStream, Spawner) -> F,
    ) -> io::Result<()> {
        let readiness = Rc::<Readiness>::default();
        let task = self.slots.vacant_key();
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        // Closing the socket, its only descriptor, ends this. An event that was taken before tells the next task of that
        // number something untrue, which its next call finds out.
        epoll::add(&*self.epoll, stream.get_ref(), EventData::new_u64(task as u64), flags)?;
        let work = Box::pin(work(LoopStream::new(stream, readiness.clone()), self.spawned.clone()));
        // Its first event is on its way: a socket that is new can be written.
        self.add(work, Some(readiness));
        Ok(())
    }

    /// Gives the work the next free number, which is returned. It is not polled yet.
    fn add(&mut self, work: Work, readiness: Option<Rc<Readiness>>) -> usize {
        let entry = self.slots.vacant_entry();
        let task = entry.key();
        let woken = Arc::new(TaskWaker::new(self.bell.clone(), task));
        entry.insert(Task { work, waker: Waker::from(woken.clone()), woken, readiness });
        task
    }

    /// The kernel said something about the socket of that task.
    pub(super) fn told(&mut self, task: usize, flags: EventFlags) {
        let Some(of) = self.slots.get(task) else { return };
        if let Some(readiness) = &of.readiness {
            let ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            readiness.told(flags.contains(EventFlags::IN), flags.contains(EventFlags::OUT), ended);
        }
        self.run(task);
    }

    /// Runs the tasks that have been woken, once each.
    pub(super) fn run_woken(&mut self) {
        let mut running = std::mem::take(&mut self.running);
        self.bell.take(&mut running);
        for task in running.drain(..) {
            if let Some(of) = self.slots.get(task) {
                of.woken.served();
                self.run(task);
            }
        }
        self.running = running;
    }

    /// Runs one task, and what it begins.
    fn run(&mut self, task: usize) {
        self.poll(task);
        loop {
            // What begins begins more in its turn, so nothing is borrowed meanwhile.
            let Some(work) = self.spawned.0.borrow_mut().pop_front() else { return };
            let task = self.add(work, None);
            self.poll(task);
        }
    }

    fn poll(&mut self, task: usize) {
        let Some(Task { work, waker, readiness, .. }) = self.slots.get_mut(task) else { return };
        if let Some(readiness) = readiness {
            readiness.begin_turn();
        }
        let mut context = Context::from_waker(waker);
        // A defect in one task costs the others nothing: it is gone, with its connection.
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut context)));
        if let Ok(polled) = &polled
            && polled.is_pending()
        {
            return;
        }
        let ended = self.slots.remove(task);
        if let Err(panic) = polled {
            tracing::error!(panic = text(&*panic), "a task of a data thread panicked; its connection closes");
        }
        drop(ended);
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a text")
}
