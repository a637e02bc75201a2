#!/bin/sh
# Before files go. rpm knows no purge, so the end of the last version ($1 is 0) also removes what Verdict has created in the kernel.
set -e
if [ "$1" = 0 ]; then
	if [ -d /run/systemd/system ]; then systemctl disable --quiet --now verdict.service; fi
	/usr/bin/verdict cleanup || echo "cannot remove the rules; they stay in force until the next boot" >&2
	rm -rf /run/verdict /run/private/verdict
fi
