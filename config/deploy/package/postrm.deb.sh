#!/bin/sh
# After files went. A purge removes all that Verdict has created: rules, virtual servers, addresses, and what a restart would read.
set -e
case $1 in
remove)
	if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
	if [ -e /var/lib/verdict/verdict ]; then
		echo "verdict is removed. Its rules stay in force until the next boot; to remove them as well: apt purge verdict"
	fi
	;;
purge)
	if [ -e /var/lib/verdict/verdict ]; then
		/var/lib/verdict/verdict cleanup || echo "cannot remove the rules; they stay in force until the next boot" >&2
	fi
	rm -rf /var/lib/verdict /run/verdict /run/private/verdict /etc/systemd/system/*.wants/verdict.service
	;;
esac
