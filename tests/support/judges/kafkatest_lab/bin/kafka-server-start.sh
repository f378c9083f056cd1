#!/usr/bin/env bash
# In the place of Kafka's script: says Kafka's word once the node serves. -X kafka.Kafka is there for `ps | grep` and jcmd.
here=$(cd "$(dirname "$0")" && pwd)
config=${*: -1}
[ "$("$here/whose-node.sh" "$config")" = kafkas ] && exec "$here/kafkas-server-start.sh" "$@"
word=listening
grep -q '^process.roles=.*broker' "$config" && word=serving
exec > >(exec sed -u "/ info $word node=/a Kafka Server started (kraft)") 2>&1
exec "$JUDGED_PYTHON" -X kafka.Kafka -m kraft serve -c "$config"
