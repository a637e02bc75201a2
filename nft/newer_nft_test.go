//go:build newernft

package nft

import (
	"os/exec"
	"strings"
	"testing"
)

// TestNewerNFT lists and loads with the nft of Debian 13 (1.1.3), which testdata/newer-nft.sh downloads. Because of the
// build tag, ordinary runs do not download it. The older nft never lists a table that the newer one has made: nft 1.0.6
// aborts at the newer form of user data.
func TestNewerNFT(t *testing.T) {
	fetched, err := exec.Command("testdata/newer-nft.sh", "../.cache/nft-trixie").Output()
	if err != nil {
		t.Fatalf("fetch the newer nft: %v", err)
	}
	newer := strings.TrimSpace(string(fetched))
	list := func(n *namespace) string { return n.Must(t, "", newer, "list", "ruleset") }
	for _, x := range examples() {
		t.Run(x.name, func(t *testing.T) {
			text := x.golden(t)
			ours, older, theirs, again := newNamespace(t), newNamespace(t), newNamespace(t), newNamespace(t)
			x.install(t, ours.engine(t))
			listed := list(ours)

			older.load(t, text)
			compareListings(t, "newer nft lists the engine's table unlike the golden text that the older nft loaded", listed, list(older))
			theirs.Must(t, text, newer, "-f", "-")
			compareListings(t, "newer nft lists the engine's table unlike the golden text that it loaded itself", listed, list(theirs))
			again.Must(t, listed, newer, "-f", "-")
			compareListings(t, "newer nft does not load its listing of the engine's table unchanged", list(again), listed)
			compareListings(t, "the older nft no longer lists the engine's table as before", ours.list(t), older.list(t))
		})
	}
}
