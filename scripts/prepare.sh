#!/bin/bash
# Installs what the local cluster, the tests and the real client need: Debian packages, and a Python environment of its
# own with the client, kept in the cache directory. Nothing when everything is there.
#   prepare.sh packages
#   prepare.sh client            prints the environment's python
#   prepare.sh client RELEASE    the same with the client of an older release, e.g. 0.3.12.post1
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/../e2e/cluster/settings.sh"

packages() {
  local wanted="ca-certificates containerd containernetworking-plugins curl g++ gcc iproute2 iptables libc6-dev libibverbs1 nftables openssl prometheus python3 python3-venv"
  local missing="" package
  if ! command -v apt-get >/dev/null; then
    echo "no apt-get here: nothing is installed, the preflight tells what is missing"
    return 0
  fi
  for package in $wanted; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=" $package"
  done
  [ -n "$missing" ] || { echo "all there"; return 0; }
  [ "$(id -u)" = 0 ] || { echo "you are not root, and these packages are missing:$missing" >&2; return 1; }
  echo "installing$missing"
  # Only programs are wanted (of prometheus: promtool). What comes with a service neither starts now nor at the next boot.
  local policy=/usr/sbin/policy-rc.d
  if [ ! -e $policy ]; then
    trap "rm -f $policy" EXIT
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod +x $policy
  fi
  apt-get update -q
  # shellcheck disable=SC2086  # a list
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
  if [[ $missing == *prometheus* && -d /run/systemd/system ]]; then
    systemctl disable --quiet prometheus.service
  fi
}

client() {
  local requirements=$ROOT/e2e/client/requirements${1:+-$1}.txt key directory
  [ -e "$requirements" ] || { echo "no $requirements" >&2; return 2; }
  key=$( (python3 -VV; cat "$requirements") | sha256sum | cut -c1-16)
  directory=$CACHE/client-$key
  # Tests ask for it at the same time.
  mkdir -p "$CACHE"
  exec 8>"$directory.lock"
  flock 8
  if [ ! -e "$directory/.ok" ]; then
    rm -rf "$directory"
    python3 -m venv "$directory"
    "$directory/bin/pip" install --disable-pip-version-check --no-input -r "$requirements" >&2
    # An older release finds a library that it is linked with only where it is told to look.
    {
      echo '#!/bin/sh'
      echo "export LD_LIBRARY_PATH=\$(echo '$directory'/lib/python3*/site-packages/nvidia/cuda_runtime/lib)"
      echo "exec '$directory/bin/python' \"\$@\""
    } >"$directory/bin/client-python"
    chmod +x "$directory/bin/client-python"
    "$directory/bin/client-python" -c 'import mooncake.store' >&2
    touch "$directory/.ok"
  fi
  echo "$directory/bin/${1:+client-}python"
}

case ${1:-} in
  packages) packages ;;
  client) client "${2:-}" ;;
  *) echo "usage: $0 packages | client [RELEASE]" >&2; exit 2 ;;
esac
