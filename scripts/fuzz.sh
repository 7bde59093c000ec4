#!/bin/bash
# A bounded run of every fuzz target, from seeds made of the captured traffic. FUZZ_SECONDS (default 30) for each.
# cargo-fuzz is built once and kept in the cache directory.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/../e2e/cluster/settings.sh"
VERSION=0.13.2
tools=$CACHE/cargo-fuzz-$VERSION
if [ ! -x "$tools/bin/cargo-fuzz" ]; then
  cargo install --quiet --locked --root "$tools" "cargo-fuzz@$VERSION"
fi
cd "$ROOT"
python3 fuzz/seeds.py
for target in fuzz/fuzz_targets/*.rs; do
  # -s none: a sanitizer needs a nightly compiler; overflow checks and debug assertions are on without one.
  PATH=$tools/bin:$PATH cargo fuzz run -s none "$(basename "$target" .rs)" -- \
    -max_total_time="${FUZZ_SECONDS:-30}" -max_len=65536 -rss_limit_mb=512 -timeout=5 -print_final_stats=1
done
