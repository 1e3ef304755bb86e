#!/usr/bin/env bash
# Starts and stops a Docker engine by hand, for machines without an init system.
#   engine.sh start   does nothing when an engine answers already
#   engine.sh stop    ends the engine that `start` started, no other one
# It copes with what a killed engine leaves behind: pid files, sockets, an orphaned containerd,
# containers that would start again, networks.
set -Eeuo pipefail

STATE_DIR=${STACK_ENGINE_DIR:-/var/tmp/vllm-compose-engine}
PID_FILE=$STATE_DIR/dockerd.pid
LOG=$STATE_DIR/dockerd.log
START_TIMEOUT_S=90 # a cold start takes 2 to 5 s; replaying leftover containers takes longer

say() { printf 'engine: %s\n' "$*"; }

answers() { timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# is_program PID NAME: pids are reused, so a number in a stale file proves nothing by itself. A zombie
# that nobody reaped has an empty command line and counts as gone.
is_program() { [[ -n $1 && "$(tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline")" == *"$2"* ]]; }

drop_stale() { # drop_stale PID_FILE PROGRAM
  local pid
  pid=$(cat "$1" 2>/dev/null || true)
  if ! is_program "$pid" "$2"; then rm -f "$1"; fi
}

end_process() { # end_process PID PROGRAM SECONDS
  is_program "$1" "$2" || return 0
  kill -TERM "$1"
  for _ in $(seq "$3"); do
    is_program "$1" "$2" || return 0
    sleep 1
  done
  say "$2 ($1) did not stop within $3 s; killing it"
  kill -KILL "$1"
}

clear_leftovers() {
  local pid
  drop_stale /run/docker.pid dockerd
  drop_stale /var/run/docker/containerd/containerd.pid containerd
  # A dockerd that runs but does not answer on the socket is of no use and holds the pid file.
  pid=$(cat /run/docker.pid 2>/dev/null || true)
  end_process "$pid" dockerd 30
  pid=$(cat /var/run/docker/containerd/containerd.pid 2>/dev/null || true)
  end_process "$pid" containerd 15
  rm -f /run/docker.pid /run/docker.sock /var/run/docker/containerd/containerd.pid
}

# Packets larger than the uplink's would be lost where ICMP is filtered; Docker assumes 1500.
uplink_mtu() {
  local dev
  dev=$(ip -o -4 route show default 2>/dev/null | awk '{for (i = 1; i < NF; i++) if ($i == "dev") print $(i + 1)}' | head -n 1)
  cat "/sys/class/net/${dev:-none}/mtu" 2>/dev/null || echo 1500
}

start() {
  if answers; then
    say "one answers already: $(docker version --format '{{.Server.Version}}')"
    return 0
  fi
  mkdir -p "$STATE_DIR"
  clear_leftovers
  # A session of its own: Ctrl-C in the terminal that started it must not end the engine.
  setsid dockerd --mtu "$(uplink_mtu)" >"$LOG" 2>&1 </dev/null &
  echo $! >"$PID_FILE"
  for _ in $(seq "$START_TIMEOUT_S"); do
    if answers; then
      say "started: $(docker version --format '{{.Server.Version}}')"
      return 0
    fi
    if ! kill -0 "$(cat "$PID_FILE")" 2>/dev/null; then break; fi
    sleep 1
  done
  say "no engine within $START_TIMEOUT_S s; the end of $LOG:" >&2
  tail -n 20 "$LOG" >&2
  rm -f "$PID_FILE"
  return 1
}

stop() {
  local pid
  pid=$(cat "$PID_FILE" 2>/dev/null || true)
  rm -f "$PID_FILE"
  if ! is_program "$pid" dockerd; then return 0; fi
  end_process "$pid" dockerd 60
  say "stopped"
}

case ${1:-} in
  start | stop) "$1" ;;
  *)
    say "usage: engine.sh start|stop" >&2
    exit 2
    ;;
esac
