package ipvsctl_test

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/e2e/memkernel"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/ipvsctl/wire"
)

func shop(endpoints ...string) []ipvsctl.VirtualServer {
	v := ipvsctl.VirtualServer{
		Key:       ipvsctl.Key{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: ipvsctl.TCP},
		Local:     true,
		Scheduler: "lc",
	}
	for _, e := range endpoints {
		v.RealServers = append(v.RealServers, ipvsctl.RealServer{Addr: netip.MustParseAddrPort(e), Weight: 1})
	}
	return []ipvsctl.VirtualServer{v}
}

func open(o ipvsctl.Options, k ipvsctl.Kernel) *ipvsctl.Engine {
	e, err := ipvsctl.New(o, k)
	if err != nil {
		panic(err)
	}
	return e
}

// A service port gets a virtual server with two endpoints. Then one of them goes: it drains, and Tick deletes it.
func Example() {
	now := time.Now()
	engine := open(ipvsctl.Options{GracefulPeriod: time.Minute}, memkernel.NewIPVS())
	do := func(title string, step func(time.Time) (ipvsctl.Result, error)) {
		result, err := step(now)
		if err != nil {
			fmt.Println(err)
		}
		fmt.Printf("# %s\n%s", title, result.Operations)
	}

	if err := engine.Set("shop:http", shop("10.0.0.1:8080", "10.0.0.2:8080")); err != nil {
		fmt.Println(err)
	}
	fmt.Println("# to guard:", engine.Coming())
	do("Add", engine.Add)
	do("Remove", engine.Remove)

	if err := engine.Set("shop:http", shop("10.0.0.2:8080")); err != nil {
		fmt.Println(err)
	}
	do("Add", engine.Add)
	now = now.Add(time.Minute)
	do("Tick", engine.Tick)

	// Output:
	// # to guard: [10.96.0.1]
	// # Add
	// ipvsadm -A -t 10.96.0.1:80 -s lc
	// ipvsadm -a -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 1
	// ipvsadm -a -t 10.96.0.1:80 -r 10.0.0.2:8080 -m -w 1
	// ip route add local 10.96.0.1 dev lo table local proto 118 metric 1024
	// # Remove
	// # Add
	// ipvsadm -e -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 0
	// # Tick
	// ipvsadm -d -t 10.96.0.1:80 -r 10.0.0.1:8080
}

// Another tool has the key that a service port needs.
func ExampleEngine_Obstacle() {
	k := memkernel.NewIPVS()
	k.Put(wire.Server{Key: shop()[0].Key})
	engine := open(ipvsctl.Options{}, k)
	fmt.Println(engine.Obstacle(shop("10.0.0.1:8080")))
	// Output:
	// virtual server 10.96.0.1:80/tcp: another tool has made this virtual server
}

// A new process takes over what an earlier one left, and drains what it does not want.
func ExampleNew() {
	k := memkernel.NewIPVS()
	earlier := open(ipvsctl.Options{}, k)
	if err := earlier.Set("shop:http", shop("10.0.0.1:8080")); err != nil {
		fmt.Println(err)
	}
	if _, err := earlier.Add(time.Now()); err != nil {
		fmt.Println(err)
	}

	engine := open(ipvsctl.Options{GracefulPeriod: time.Minute}, k)
	result, err := engine.Remove(time.Now())
	if err != nil {
		fmt.Println(err)
	}
	fmt.Print(result.Operations)
	// Output:
	// ipvsadm -e -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 0
}
