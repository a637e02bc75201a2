#!/bin/sh
# After files were unpacked. An upgrade restarts the daemon. Its rules stay in the kernel meanwhile, and the new process changes
# what differs. A first installation starts nothing: there is nothing to balance yet.
set -e
case $1 in
configure | abort-* | 1 | 2) # dpkg; 1 and 2: rpm, the number of versions that are installed now
	if [ -d /run/systemd/system ]; then
		systemctl daemon-reload
		"$(command -v deb-systemd-invoke || echo systemctl)" try-restart verdict.service || echo "verdict does not start; its rules stay in force: systemctl status verdict" >&2
	fi
	rm -rf /var/lib/verdict # what an earlier removal left for a purge
	;;
esac
