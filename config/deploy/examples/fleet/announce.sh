#!/bin/sh
# announce.sh bird|frr: announce this balancer's routes as long as Verdict is ready, and withdraw them otherwise.
bird() { # enable or disable
	for routes in vip4 vip6 back4 back6; do birdc ${BIRD_SOCKET:+-s "$BIRD_SOCKET"} "$1" "$routes"; done
}
frr() {
	shutdown='bgp shutdown'
	[ "$1" = disable ] || shutdown="no $shutdown"
	vtysh ${FRR_SOCKETS:+--vty_socket "$FRR_SOCKETS"} -c 'configure terminal' -c 'router bgp 65001' -c "$shutdown"
}
is=
while :; do
	want=disable
	curl -fs -m 1 -o /dev/null http://127.0.0.1:10256/readyz && want=enable
	[ "$want" = "$is" ] || { "$1" "$want" && is=$want; }
	sleep 0.2
done
