#!/usr/bin/env bash
# Removes what killed test runs left: containers, networks and volumes of Compose projects named
# stacktest-*, and network namespaces of that name. Never anything else.
set -Eeuo pipefail

LABEL=com.docker.compose.project
PREFIX=stacktest-

of_tests() { # of_tests LIST_COMMAND...: ids of the objects whose project is a test's
  "$@" --filter "label=$LABEL" --format "{{.ID}} {{.Label \"$LABEL\"}}" |
    awk -v prefix="$PREFIX" 'index($2, prefix) == 1 {print $1}'
}

volumes() {
  docker volume ls --filter "label=$LABEL" --format "{{.Name}} {{.Label \"$LABEL\"}}" |
    awk -v prefix="$PREFIX" 'index($2, prefix) == 1 {print $1}'
}

remove() { # remove WHAT COMMAND...: the ids come on standard input
  local ids
  mapfile -t ids
  if ((${#ids[@]})); then
    printf 'sweep: %s %s left by an earlier run\n' "${#ids[@]}" "$1"
    "${@:2}" "${ids[@]}" >/dev/null
  fi
}

of_tests docker ps --all | remove containers docker rm --force --volumes
of_tests docker network ls | remove networks docker network rm
volumes | remove volumes docker volume rm --force

if command -v ip >/dev/null; then
  for namespace in $(ip netns list | awk -v prefix="$PREFIX" 'index($1, prefix) == 1 {print $1}'); do
    for pid in $(ip netns pids "$namespace"); do kill "$pid"; done
    ip netns delete "$namespace"
  done
fi
