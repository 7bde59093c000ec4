#!/bin/bash
# Cargo's runner for test binaries: the standard harness prints each test's time, which it only does when told that
# unstable options are fine. Only the running is told, so nothing is compiled differently.
RUSTC_BOOTSTRAP=1 exec "$@" -Zunstable-options --report-time
