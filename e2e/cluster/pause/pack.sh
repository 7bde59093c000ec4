#!/bin/bash
# pack.sh OUT.tar: compiles and packs the image that holds a pod's namespaces; nothing if it is there and current.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
images=$(readlink -f "$here/../../../manifests/images")
if [ "$1" -nt "$here/pause.c" ] && [ "$1" -nt "$here/Containerfile" ]; then exit 0; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/rootfs"
cc -Os -static -s -o "$work/rootfs/pause" "$here/pause.c"
python3 "$images/pack.py" --containerfile "$here/Containerfile" --rootfs "$work/rootfs" --name localhost/pause --tag local --output "$1" >/dev/null
