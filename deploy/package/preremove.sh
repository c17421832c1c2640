#!/bin/sh
# Stops the node when the package is removed, and not when it is upgraded: dpkg says remove, rpm says 0.
set -e
if [ -d /run/systemd/system ] && { [ "$1" = remove ] || [ "$1" = 0 ]; }; then
  systemctl --no-reload disable --now purser.service
fi
