#!/bin/bash
# `make test`: everything there is, in the order of what fails soonest, never two things at once that want both cores.
#   test.sh       all of it
#   test.sh e2e   only the scenarios on a real cluster
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$ROOT"
SCRIPTS=$ROOT/scripts
unset KUBECONFIG MASTER_IMAGE OPERATOR_IMAGE

only=${1:-all}
case "$# $only" in "0 all" | "1 e2e") ;; *) echo "usage: $0 [e2e]" >&2; exit 2 ;; esac

unit() {
  local runner
  runner=CARGO_TARGET_$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')_RUNNER
  env "$runner=$SCRIPTS/timed-test.sh" cargo test --workspace --locked --no-fail-fast --lib --bins --tests
  cargo test --workspace --locked --no-fail-fast --doc
}
clippy() {
  cargo clippy --workspace --all-targets --locked -- -D warnings
  # Not among "all": a plain `cargo test` must not start a Kubernetes.
  cargo clippy -p mooncake-e2e --test scenarios --locked -- -D warnings
  # The core's tests compile without kube.
  cargo check -p mooncake-master --no-default-features --lib --profile test --locked
}
interleavings() {
  cargo test --manifest-path interleavings/Cargo.toml --target-dir target/interleavings --locked
}
# The client that most tests use, and an older release for each wire generation.
clients() {
  local release
  "$SCRIPTS/prepare.sh" client
  for release in "$ROOT"/e2e/client/requirements-*.txt; do
    release=${release##*/requirements-}
    "$SCRIPTS/prepare.sh" client "${release%.txt}"
  done
}
slowest() {
  echo "== Slowest tests"
  sed -nE 's/^test (.*) \.\.\. [a-z]+ <([0-9.]+)s>$/\2 s  \1/p; s/^ +([a-z0-9_]+) took ([0-9.]+) s$/\2 s  \1/p' \
    "$LOGS"/Unit-and-integration-tests*.log "$LOGS"/Scenarios*.log 2>/dev/null | sort -rn | head -15
}
# Their output to the screen and to the log from which the slowest are read.
unit_shown() { unit 2>&1 | tee "$LOGS/Unit-and-integration-tests.log" | grep -vE '^test .* \.\.\. ok|^$|^running|^ +Running'; }
scenarios() { cargo test -p mooncake-e2e --test scenarios --locked 2>&1 | tee "$LOGS/Scenarios.log"; }
# What the README promises about these three, word by word, on the machine as the scenarios left it.
readme_commands() {
  make run
  make run
  make clean-cluster
}

without="make lint and make unit need no cluster."
preflight "$without" machine
# Whatever ends this, no cluster stays. (The scenarios clean up themselves; this is for when they were killed.)
trap 'stop_child; "$ROOT/e2e/cluster/down.sh" --wipe' EXIT
step "Install what is missing" "$SCRIPTS/prepare.sh" packages
preflight "$without"
if [ "$only" = all ]; then
  step "Format" cargo fmt --all --check
  step "Dependency policy" "$SCRIPTS/policy.py"
fi
step "Build Kubernetes (once; about 7 minutes on 2 cores)" "$ROOT/e2e/cluster/programs.sh"
step "Install the Mooncake clients from PyPI (once)" clients
if [ "$only" = all ]; then
  step "Lints" clippy
  step "Build the tests" cargo test --workspace --locked --no-run
  shown_step "Unit and integration tests" unit_shown
fi
[ "$only" = e2e ] || step "Interleavings (loom)" interleavings
[ "$only" = e2e ] || step "Fuzz (bounded)" "$SCRIPTS/fuzz.sh"
step "Build the master and the operator" cargo build --release --locked -p mooncake-master -p mooncake-operator
step "Build the scenarios" cargo test -p mooncake-e2e --test scenarios --locked --no-run
shown_step "Scenarios on a real cluster" scenarios
if [ "$only" = all ]; then
  shown_step "The commands of the README" readme_commands
fi
slowest
print_times
