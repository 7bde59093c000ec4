#!/bin/bash
# rootfs.sh BINARY DIRECTORY [ALIAS]: the whole content of an image, as the Containerfiles and the local packer use it:
# the program as /usr/bin/NAME, an optional symlink ALIAS beside it, the shared libraries and the loader that it names,
# and an unprivileged user. No shell, no package manager, nothing that is written to.
#
# Dynamic and not crt-static: it is the same binary that the tests ran, getaddrinfo works in full (a static glibc has no
# name service modules to load), and the libraries cost 3 MB.
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: $0 BINARY DIRECTORY [ALIAS]" >&2; exit 2; }
binary=$1 root=$2 alias=${3:-}

install -D -m 0755 "$binary" "$root/usr/bin/$(basename "$binary")"
[ -z "$alias" ] || ln -s "$(basename "$binary")" "$root/usr/bin/$alias"

# ldd prints "NAME => PATH (ADDRESS)" for a library and "PATH (ADDRESS)" for the loader.
libraries=$(ldd "$binary") || { echo "$binary is not a dynamic program" >&2; exit 1; }
if grep -q 'not found' <<<"$libraries"; then echo "$libraries" >&2; exit 1; fi
for library in $(grep -oE '/[^ ]+' <<<"$libraries" | sort -u); do
  install -D -m 0755 "$(readlink -f "$library")" "$root$library"
done

mkdir -p "$root/etc"
echo 'nonroot:x:65532:65532:nonroot:/:/sbin/nologin' >"$root/etc/passwd"
echo 'nonroot:x:65532:' >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
