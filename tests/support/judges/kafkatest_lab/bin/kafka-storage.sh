#!/usr/bin/env bash
# In the place of Kafka's script.
here=$(cd "$(dirname "$0")" && pwd)
config=$(sed -nE 's/.*--config[ =]([^ ]+).*/\1/p' <<< "$*")
[ "$("$here/whose-node.sh" "$config")" = kafkas ] && exec "$here/kafkas-storage.sh" "$@"
exec "$JUDGED_PYTHON" -m kraft "$@"
