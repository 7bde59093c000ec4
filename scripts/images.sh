#!/bin/bash
# Packs the two binaries (of the release build, or PROFILE=debug) into images for the local cluster, loads them, and writes their names to
# $DATA/images/names as MASTER_IMAGE=... and OPERATOR_IMAGE=... The tag is the content: changed content is a new name.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/../e2e/cluster/settings.sh"
target=$(cargo metadata --format-version 1 --no-deps --offline --manifest-path "$ROOT/Cargo.toml" | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
mkdir -p "$DATA/images"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

pack() { # NAME [ALIAS]
  "$ROOT/manifests/images/rootfs.sh" "$target/${PROFILE:-release}/mooncake-$1" "$work/$1" "${@:2}"
  python3 "$ROOT/manifests/images/pack.py" --containerfile "$ROOT/manifests/images/$1.Containerfile" \
    --rootfs "$work/$1" --name "localhost/mooncake-$1" --output "$DATA/images/$1.tar"
}
{
  echo "MASTER_IMAGE=$(pack master mooncake_master)"
  echo "OPERATOR_IMAGE=$(pack operator)"
} >"$work/names"
"$ROOT/e2e/cluster/load.sh" "$DATA/images/master.tar" "$DATA/images/operator.tar"
mv "$work/names" "$DATA/images/names"
cat "$DATA/images/names"
