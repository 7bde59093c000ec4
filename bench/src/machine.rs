//! The machine that figures come from: without it they mean nothing.

use std::{fs, num::NonZero, thread};

/// Processor, cores, memory and kernel in one line, as far as they can be read.
pub(crate) fn describe() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let (processor, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let processor = entry(&processor, "model name").unwrap_or("unknown processor");
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let kib = entry(&memory, "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let gib = kib.map_or_else(String::new, |kib| format!(", {:.0} GiB", kib as f64 / f64::from(1 << 20)));
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{processor}, {cores} cores{gib}, Linux {}", kernel.trim())
}

/// The value of the first line `name : value`.
fn entry<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let of = |line: &'a str| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then(|| value.trim())
    };
    text.lines().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_by_their_whole_name() {
        let text = "model\t\t: 17\nmodel name\t: A B @ 2 GHz\nmodel name\t: other\n";
        assert_eq!(entry(text, "model name"), Some("A B @ 2 GHz"));
        assert_eq!(entry(text, "name"), None);
        assert!(describe().contains(" cores"), "{}", describe());
    }
}
