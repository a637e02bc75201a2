package snapshot

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
)

// OpenTables opens the nft tables for look-ups by key.
func OpenTables() (*inspect.Tables, error) {
	tables, err := inspect.OpenTables(kernel.Options{})
	return tables, AsRoot(err)
}

// AsRoot adds to an error what is missing if the kernel forbids to read.
func AsRoot(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w; run this command as root, because it needs CAP_NET_ADMIN", err)
	}
	return err
}

// VirtualServers lists the virtual servers of Verdict. Without IPVS there are none.
func VirtualServers() ([]ipvsctl.Status, error) {
	if !ipvsctl.Loaded() {
		return nil, nil
	}
	servers, err := ipvsctl.List(ipvsctl.Options{})
	if errors.Is(err, ipvsctl.ErrNoIPVS) {
		return nil, nil
	}
	return servers, err
}

// VirtualServer reads one virtual server of Verdict.
func VirtualServer(k ipvsctl.Key) (ipvsctl.Status, bool, error) {
	if !ipvsctl.Loaded() {
		return ipvsctl.Status{}, false, nil
	}
	return ipvsctl.Find(ipvsctl.Options{}, k)
}
