#!/usr/bin/env bash
# whose-node.sh CONFIG: `kafkas` if Kafka's own software runs this node. JUDGED: ours, jvm, or mixed, where node 2 is Kafka's.
case $JUDGED in
  jvm) echo kafkas ;;
  mixed) if grep -qx 'node.id=2' "$1"; then echo kafkas; else echo ours; fi ;;
  *) echo ours ;;
esac
