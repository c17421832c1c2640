#!/bin/sh
# Makes the user and the folders. It starts nothing: there are no settings yet. An upgrade leaves the old node running,
# since a restart waits for its calls.
set -e
if command -v systemd-sysusers >/dev/null; then
  systemd-sysusers purser.conf
elif ! getent passwd purser >/dev/null; then
  useradd --system --user-group --home-dir /var/lib/purser --no-create-home --shell /usr/sbin/nologin purser
fi
install -d -m 0750 -o root -g purser /etc/purser
install -d -m 0700 -o purser -g purser /var/lib/purser
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  if systemctl --quiet is-active purser.service; then
    echo "purser: the old version still runs: systemctl restart purser"
  fi
fi
