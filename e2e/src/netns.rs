//! Threads in the cluster's network namespace. Whoever puts load on the cluster runs there: should the cluster go away
//! under it, its packets end with the namespace.

use anyhow::Context as _;
use std::{fs::File, os::fd::AsFd as _, thread};

const NAMESPACE: &str = "/run/netns/k8s";

/// Runs `body` on a new thread that opens all its sockets in the cluster's namespace, on a runtime of its own.
///
/// # Errors
/// When the namespace is not there, or the thread could not be started.
pub fn spawn<F, T>(name: &str, body: F) -> anyhow::Result<thread::JoinHandle<anyhow::Result<T>>>
where
    F: AsyncFnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let namespace = File::open(NAMESPACE).with_context(|| format!("{NAMESPACE}: is the cluster up?"))?;
    let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
        rustix::thread::move_into_link_name_space(
            namespace.as_fd(),
            Some(rustix::thread::LinkNameSpaceType::Network),
        )
        .context("setns")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(tokio::task::LocalSet::new().block_on(&runtime, body()))
    })?;
    Ok(thread)
}
