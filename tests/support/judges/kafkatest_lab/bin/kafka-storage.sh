#!/usr/bin/env bash
# In the place of Kafka's script.
here=$(cd "$(dirname "$0")" && pwd)
config=$(sed -nE 's/.*--config[ =]([^ ]+).*/\1/p' <<< "$*")
[ "$("$here/whose-node.sh" "$config")" = kafkas ] && exec "$here/kafkas-storage.sh" "$@"
# Beside Kafka's node the metadata is what that one knows.
[ "$JUDGED" = mixed ] && set -- "$@" --release-version "$KAFKAS_RELEASE"
exec "$JUDGED_PYTHON" -m kraft "$@"
