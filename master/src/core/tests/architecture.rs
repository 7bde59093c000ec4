//! B6 as a rule about the source: who may look at the liveness of a client at all.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// What a module names when it looks at the client table or at a record.
const LOOKS: [&str; 5] =
    ["LivenessState", "ClientLivenessRecord", ".owner()", "self.clients", "client_state("];

/// Who may, and why. Whoever wants to know whether something *serves* or is *kept* asks
/// [`ServingEligibility`](crate::core::eligibility::ServingEligibility), and belongs not here.
const ALLOWED: [(&str, &str); 18] = [
    ("core/liveness/", "it is the client table"),
    ("core/eligibility.rs", "it is the one place that decides"),
    ("core/offboarding/", "retires an incarnation, and compares it before it erases"),
    ("core/mounts.rs", "creates records, hears signals, keeps the barrier"),
    ("core/segments/mod.rs", "keeps the record that created a segment (B8)"),
    ("core/segments/placement.rs", "knows the host of a writer by the segments that it owns"),
    ("core/segments/registry.rs", "compares the owner of what is mounted"),
    ("core/counters.rs", "counts clients by state"),
    ("core/graceful.rs", "finds the segments of a client, whatever its state"),
    ("core/inspect.rs", "shows the state of a segment's owner in diagnostics (B13)"),
    ("core/listing.rs", "shows clients by state"),
    ("core/store/replica.rs", "shows the state of a replica's owner in diagnostics (B13)"),
    ("core/tests/", "tests"),
    ("types/mod.rs", "defines the states"),
    ("admin/clients.rs", "shows clients by state"),
    ("admin/store/json.rs", "shows the state of a segment's owner in diagnostics (B13)"),
    ("admin/metrics/wire.rs", "counts the clients of each wire generation, in a table of its own"),
    ("rpc/generations/", "keeps that table"),
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("the source is there") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Lines of a file that look, comments aside.
fn looks(text: &str) -> Vec<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let looking = code.filter(|line| LOOKS.iter().any(|look| line.contains(look)));
    looking.map(|line| line.trim().to_owned()).collect()
}

#[test]
fn only_the_eligibility_decides_from_the_liveness_of_a_client() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 50, "this is not the source: {files:?}");
    let (mut broken, mut used) = (Vec::new(), BTreeSet::new());
    for file in files {
        let name = file.strip_prefix(&root).expect("below the root").to_string_lossy().into_owned();
        let looks = looks(&fs::read_to_string(&file).expect("readable"));
        match ALLOWED.iter().find(|(allowed, _)| name.starts_with(allowed)) {
            Some((allowed, _)) if !looks.is_empty() => {
                used.insert(*allowed);
            }
            Some(_) => {}
            None => broken.extend(looks.into_iter().map(|line| format!("{name}: {line}"))),
        }
    }
    assert!(
        broken.is_empty(),
        "these look at the liveness of clients; ask ServingEligibility, or say here why not: {broken:#?}"
    );
    let needless: Vec<_> = ALLOWED.iter().filter(|(allowed, _)| !used.contains(allowed)).collect();
    assert!(needless.is_empty(), "these do not look any more: {needless:?}");
}

#[test]
fn a_look_is_noticed_in_code_and_not_in_comments() {
    let text = "// segment.owner() is asked\nif segment.owner().state() == LivenessState::Active {\n}\n";
    assert_eq!(looks(text), ["if segment.owner().state() == LivenessState::Active {"]);
}
