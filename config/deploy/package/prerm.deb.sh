#!/bin/sh
# Before files go. A removal stops the daemon. Its rules stay in force until a purge, which needs the program once more.
set -e
if [ "$1" = remove ]; then
	if [ -d /run/systemd/system ]; then deb-systemd-invoke stop verdict.service; fi
	mkdir -p /var/lib/verdict
	ln -f /usr/bin/verdict /var/lib/verdict/verdict 2>/dev/null || cp /usr/bin/verdict /var/lib/verdict/verdict
fi
