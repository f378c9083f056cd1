#!/usr/bin/env bash
# lab.sh LAB N CHECKOUT COMMAND...: runs COMMAND in a network, mount and PID namespace of its own, with a bridge and N nodes.
# A node is a process that holds four more namespaces (network, mount, UTS, PID). Nothing reaches the machine's network, and
# whatever is left ends with this script, however it ends. LAB/opt is seen as /opt, LAB/nodes/workerK/mnt as a node's /mnt.
set -eu
lab=$1 count=$2 checkout=$3
shift 3
if [ "${IN_LAB:-}" != 1 ]; then
  export IN_LAB=1
  exec unshare --net --mount --pid --fork --kill-child --mount-proc --propagation private "$0" "$lab" "$count" "$checkout" "$@"
fi
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(TMPDIR= mktemp -u) # the machine's folder of temporary files is where JVMs note their process ids: one for each node
scratch=${scratch%/*}
rm -rf "$lab/nodes"
mkdir -p "$lab/nodes"
ip link set lo up
ip link add lab0 type bridge
ip addr add 10.9.0.254/24 dev lab0
ip link set lab0 up
{
  echo "127.0.0.1 localhost"
  for k in $(seq 1 "$count"); do echo "10.9.0.$k worker$k"; done
} > "$lab/hosts"
mount --bind "$lab/hosts" /etc/hosts
mount --bind "$lab/opt" /opt
for k in $(seq 1 "$count"); do
  node=$lab/nodes/worker$k
  mkdir -p "$node/mnt" "$node/tmp"
  case $checkout in # seen at its own path, though each node has its own scratch folder
    "$scratch"/*) mkdir -p "$node/tmp/${checkout#"$scratch"/}" && mount --bind "$checkout" "$node/tmp/${checkout#"$scratch"/}" ;;
  esac
  unshare --net --mount --uts --pid --fork --mount-proc --propagation private bash -c "
    hostname worker$k
    cd /
    mount --bind '$node/mnt' /mnt
    mount --rbind '$node/tmp' '$scratch'
    exec python3 /dev/fd/9" 9< "$here/init.py" < /dev/null > "$node/init.log" 2>&1 & # opened before the scratch folder is another one
  outer=$!
  for _ in $(seq 200); do
    pid=$(tr -d ' ' < "/proc/$outer/task/$outer/children" 2> /dev/null) || true
    [ -n "$pid" ] && [ "$(nsenter -t "$pid" -u hostname)" = "worker$k" ] && break
    sleep 0.05
  done
  ip link add "v$k" type veth peer name eth0 netns "$pid"
  ip link set "v$k" master lab0 up
  nsenter -t "$pid" -n sh -c "ip link set lo up; ip addr add 10.9.0.$k/24 dev eth0; ip link set eth0 up"
  echo "$pid" > "$node/pid"
done
"$@"
