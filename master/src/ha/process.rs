//! The process as a whole: its incarnation, its termination log, and its ends.

use rand::Rng;
#[cfg(feature = "kubernetes")]
use std::time::Duration;
use std::{
    ffi::{CString, OsString},
    fs::OpenOptions,
    io::{self, Write},
    os::unix::ffi::OsStringExt,
    path::Path,
};

/// Environment variable of the next image: until when (`CLOCK_BOOTTIME`, nanoseconds) it does not claim (design §6.11).
pub(super) const RELUCTANT_UNTIL: &str = "MOONCAKE_MASTER_RELUCTANT_UNTIL_NS";

/// A new incarnation id: 128 random bits in hexadecimal. Every image of the process has its own, also after an exec.
pub(super) fn random_incarnation() -> String {
    format!("{:032x}", rand::rng().random::<u128>())
}

/// Truncates the container's termination log and writes the incarnation id into it, under 4 KiB, so that the container's
/// termination message proves which incarnation ended (design §6.7). Without such a file (no container) nothing happens.
pub(super) fn write_termination_log(path: &Path, incarnation: &str) -> io::Result<bool> {
    // Never created: outside a container a file in /dev would be litter.
    let mut file = match OpenOptions::new().write(true).truncate(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    writeln!(file, "incarnation={incarnation} pid={}", std::process::id())?;
    Ok(true)
}

/// Ends the process at once: no handler, no destructor and no other thread can hold it up.
pub(super) fn exit(code: i32) -> ! {
    // SAFETY: _exit has no preconditions and does not return.
    unsafe { libc::_exit(code) }
}

/// How long not to claim, as the image before this one left it.
#[cfg(feature = "kubernetes")]
pub(super) fn inherited_reluctance(now_ns: u64) -> Option<Duration> {
    let until: u64 = std::env::var(RELUCTANT_UNTIL).ok()?.parse().ok()?;
    // A day is more than any lease duration allows for; beyond it the value is from somewhere else.
    let left = Duration::from_nanos(until.checked_sub(now_ns)?);
    (left < Duration::from_secs(86_400)).then_some(left)
}

/// Replaces the process by a new image of itself with the same arguments, a fresh incarnation and no state. The signal
/// mask stays as it is, so SIGTERM stays blocked across it; every descriptor of ours closes. Returns only if it fails.
pub(super) fn exec_self(reluctant_until_ns: Option<u64>) -> io::Error {
    let c = |text: OsString| CString::new(text.into_vec()).ok();
    let arguments: Vec<CString> = std::env::args_os().filter_map(c).collect();
    let mut environment: Vec<CString> = std::env::vars_os()
        .filter(|(name, _)| name != RELUCTANT_UNTIL)
        .filter_map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            c(name)
        })
        .collect();
    if let Some(until) = reluctant_until_ns {
        environment.extend(c(format!("{RELUCTANT_UNTIL}={until}").into()));
    }
    // By its path the process keeps its name; the link works also when the file was replaced.
    let paths = std::env::current_exe().ok().and_then(|path| c(path.into())).into_iter();
    for path in paths.chain([c"/proc/self/exe".to_owned()]) {
        execve(&path, &arguments, &environment);
    }
    io::Error::last_os_error()
}

fn execve(path: &CString, arguments: &[CString], environment: &[CString]) {
    let pointers = |strings: &[CString]| {
        let mut pointers: Vec<_> = strings.iter().map(|text| text.as_ptr()).collect();
        pointers.push(std::ptr::null());
        pointers
    };
    let (argv, envp) = (pointers(arguments), pointers(environment));
    // SAFETY: path and the strings are terminated and live until the call returns (it returns only on failure), and both
    // arrays end with a null pointer. The standard library's exec is not used because it empties the signal mask.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_termination_log_is_rewritten_and_never_created() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert!(!write_termination_log(&path, "i").unwrap());
        assert!(!path.exists());
        std::fs::write(&path, "x".repeat(9000)).unwrap();
        let id = random_incarnation();
        assert!(write_termination_log(&path, &id).unwrap());
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(&id) && text.len() < 4096, "{text}");
        assert_ne!(id, random_incarnation());
    }
}
