#!/bin/sh
# Leaves /etc/purser and /var/lib/purser: the keys and the ledger are the operator's to delete.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
