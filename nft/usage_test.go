package nft_test

import (
	"fmt"
	"net/netip"

	"github.com/verdict-proxy/verdict/e2e/memkernel"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/program"
)

// One Service port with two endpoints, in memory: what its transaction changes, and what the tables say then.
func ExampleNew() {
	k := &memkernel.NFTables{}
	m, err := nft.New(k, nft.Options{Families: []program.Family{program.IPv4}})
	if err != nil {
		panic(err)
	}
	if _, err := m.Apply(); err != nil { // the program itself, without any Service
		panic(err)
	}
	err = m.Set(&contents.Port{
		Family: program.IPv4, Name: "default/web:http", Protocol: 6,
		Cluster: []contents.Endpoint{
			{Addr: netip.MustParseAddrPort("10.0.1.1:8080"), Local: true},
			{Addr: netip.MustParseAddrPort("10.0.2.1:8080")},
		},
		Frontends: []contents.Frontend{{Addr: netip.MustParseAddr("10.96.0.10"), Port: 80, ClusterIP: true, Pool: program.ClusterPool}},
	})
	if err != nil {
		panic(err)
	}
	result, err := m.Apply()
	if err != nil {
		panic(err)
	}
	fmt.Print(result.Text())

	listing, err := inspect.ListFrom(k, []program.Family{program.IPv4}, nil)
	if err != nil {
		panic(err)
	}
	for _, fe := range listing.Frontends {
		fmt.Println(fe.Name, "at", netip.AddrPortFrom(fe.Addr, fe.Port), "leads to", fe.Cluster[0].Addr, "and", fe.Cluster[1].Addr)
	}
	// Output:
	// add element ip verdict services { 10.96.0.10 . tcp . 80 comment "default/web:http" : 0:2 }
	// add element ip verdict pools { 0:2 comment "default/web:http" : 20:2 }
	// add element ip verdict endpoints { 0:2 . 0 : 10.0.1.1 . 8080 }
	// add element ip verdict endpoints { 0:2 . 1 : 10.0.2.1 . 8080 }
	// add element ip verdict cluster-ips { 10.96.0.10 }
	// add element ip verdict hairpin { 10.0.1.1 . 10.0.1.1 }
	// default/web:http at 10.96.0.10:80 leads to 10.0.1.1:8080 and 10.0.2.1:8080
}
