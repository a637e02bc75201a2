#!/bin/bash
# flakes.sh ROUNDS COMMAND...: run a command that prints the events of "go test -json" again and again, beside load: two
# programs that only count, and one that stops a process of the tests for up to three seconds, again and again (SIGSTOP).
# Then list every test that failed once, with its output; the events of each round stay in .cache/flakes, with the rules, flows
# and logs of each failure. It fails when there is one.
# Environment: BUSY (programs that count, 2 by default), STOP (longest stop in tenths of a second, 30 by default; 0: none).
set -uo pipefail
cd "$(dirname "$0")/.."
rounds=$1
shift
logs=$PWD/.cache/flakes
rm -rf "$logs"
mkdir -p "$logs"

# below PID: the processes that it has started, and those that they have started.
below() {
	ps -e -o pid=,ppid= | awk -v top="$1" '{ parent[$1] = $2 }
		END { for (p in parent) { for (q = p; q > 1 && q != top;) q = parent[q]; if (q == top && p != top) print p } }'
}

# stops PID: as long as the process lives, stop one that it has started, at random.
stops() {
	local victim
	trap '[ -n "${victim:-}" ] && kill -CONT "$victim" 2>/dev/null; exit' TERM
	while kill -0 "$1" 2>/dev/null; do
		victim=$(below "$1" | shuf -n 1)
		[ -n "$victim" ] && kill -STOP "$victim" 2>/dev/null
		sleep "$(awk -v r=$RANDOM -v most="$STOP" 'BEGIN { print r % most / 10 }')"
		[ -n "$victim" ] && kill -CONT "$victim" 2>/dev/null
		sleep 2 # a process that is alone still runs for more than half of the time
	done
}

load=
for _ in $(seq "${BUSY:-2}"); do
	(while :; do :; done) &
	load="$load $!"
done
trap 'kill $load 2>/dev/null' EXIT
STOP=${STOP:-30}
for round in $(seq "$rounds"); do
	export VERDICT_FAILURES=$logs/failures-$round # rules, flows and logs of the moment of each failure
	"$@" >"$logs/$round.json" 2>"$logs/$round.err" </dev/null &
	tests=$! stopper=
	[ "$STOP" -gt 0 ] && { stops "$tests" & stopper=$!; }
	wait "$tests" || echo "round $round: exit code $?"
	[ -n "$stopper" ] && { kill "$stopper" 2>/dev/null; wait "$stopper" 2>/dev/null; }
	printf 'round %s of %s: %s tests passed, %s failed; load average %s\n' "$round" "$rounds" \
		"$(grep -c '"Action":"pass".*"Test":' "$logs/$round.json")" \
		"$(grep -c '"Action":"fail".*"Test":' "$logs/$round.json")" "$(cut -d' ' -f1-3 /proc/loadavg)"
done

# A test fails with its subtests, so those that have some are not named.
failed=$(cat "$logs"/*.json | sed -n 's/.*"Action":"fail","Package":"\([^"]*\)","Test":"\([^"]*\)".*/\1 \2/p' | sort | uniq -c |
	awk '{ n[$2 " " $3] = $1 } END { for (t in n) { leaf = 1; for (u in n) if (index(u, t "/") == 1) leaf = 0; if (leaf) print n[t], t } }' | sort -rn)
[ -n "$failed" ] || { echo "$rounds rounds: no test failed"; exit; }
while read -r times package name; do
	printf '\n%s of %s rounds: %s %s\n' "$times" "$rounds" "$package" "$name"
	grep -hF "\"Package\":\"$package\",\"Test\":\"$name\"" $(grep -lF "\"Action\":\"fail\",\"Package\":\"$package\",\"Test\":\"$name\"" "$logs"/*.json | head -1) |
		sed -n 's/.*"Action":"output".*"Output":"\(.*\)"}$/\1/p' | sed 's/\\n$//; s/\\t/\t/g; s/\\"/"/g'
done <<<"$failed"
exit 1
