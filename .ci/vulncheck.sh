#!/bin/bash
# vulncheck.sh GOVULNCHECK PACKAGE...: report known vulnerabilities in code that the packages call. It fails when there is
# one. When the vulnerability database cannot be reached, it says so and checks nothing: then it fails only with
# VULNCHECK=required.
# Environment: VULNDB (address of the database; also file:///FOLDER with its OSV files).
set -u
govulncheck=$1
shift
db=${VULNDB:-}
# Only a database that answers has a date.
# Without an address, it is the default of govulncheck.
updated=$("$govulncheck" ${db:+-db "$db"} -version | sed -n 's/^DB updated: //p')
if [ -z "$updated" ]; then
	echo "vulncheck: NOT CHECKED for known vulnerabilities: the database ${db:-of Go} cannot be reached; VULNDB=ADDRESS names another one" >&2
	[ "${VULNCHECK:-}" != required ]
	exit
fi
echo "vulncheck: database ${db:-of Go}, updated $updated"
"$govulncheck" ${db:+-db "$db"} "$@"
