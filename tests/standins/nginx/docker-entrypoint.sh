#!/bin/sh
# The part of the official image's entrypoint that the stack relies on: when nginx is started, every
# *.template is rendered with the environment's variables that NGINX_ENVSUBST_FILTER allows; then the
# command takes this process over. Like the official one it goes on when the output is not writable.
set -eu

render() { # render TEMPLATE_DIR OUTPUT_DIR SUFFIX
  names=$(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p' | grep -E "${NGINX_ENVSUBST_FILTER:-}" || true)
  # shellcheck disable=SC2016 # the dollar is for envsubst
  variables=$(for name in $names; do printf '${%s} ' "$name"; done)
  find "$1" -follow -type f -name "*$3" | while read -r template; do
    relative=${template#"$1"/}
    output=$2/${relative%"$3"}
    mkdir -p "$(dirname "$output")"
    echo "docker-entrypoint.sh: $template -> $output"
    envsubst "$variables" <"$template" >"$output"
  done
}

if [ "${1:-}" = nginx ] || [ "${1:-}" = nginx-debug ]; then
  templates=${NGINX_ENVSUBST_TEMPLATE_DIR:-/etc/nginx/templates}
  output=${NGINX_ENVSUBST_OUTPUT_DIR:-/etc/nginx/conf.d}
  if [ -w "$output" ]; then
    render "$templates" "$output" "${NGINX_ENVSUBST_TEMPLATE_SUFFIX:-.template}"
  else
    echo "docker-entrypoint.sh: ERROR: $output is not writable" >&2
  fi
fi
exec "$@"
