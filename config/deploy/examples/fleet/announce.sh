#!/bin/sh
# announce.sh: announce this balancer's routes as long as Verdict is ready, and withdraw them otherwise.
is=
while :; do
	want=disable
	curl -fs -m 1 -o /dev/null http://127.0.0.1:10256/readyz && want=enable
	if [ "$want" != "$is" ]; then
		for routes in vip4 vip6 back4 back6; do birdc ${BIRD_SOCKET:+-s "$BIRD_SOCKET"} "$want" "$routes"; done && is=$want
	fi
	sleep 0.2
done
