package nft

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxComment is nft's limit (NFTNL_UDATA_COMMENT_MAXLEN). nft would list a longer comment, but could not load it.
const maxComment = 128

// localSuffix is what the comment of a local pool has behind the name of the service port.
const localSuffix = " local"

// A name of a service port can have 191 bytes. A restarted process finds its ports in the kernel by their comments, so
// different names need different comments.
const (
	maxLabel        = maxComment - len(localSuffix)
	maxServiceLabel = 93
	maxPortLabel    = maxLabel - maxServiceLabel - len(":")
)

// Label is how the kernel's tables show the name of a service port, namespace/name:port. Long names are shortened; what
// is left out counts by a digest.
func Label(name string) string {
	if len(name) <= maxLabel {
		return name
	}
	at := strings.LastIndexByte(name, ':')
	if at < 0 {
		return shorten(name, maxLabel)
	}
	return ServiceLabel(name[:at]) + ":" + shorten(name[at+1:], maxPortLabel)
}

// ServiceLabel is the name of a Service in a Label that is shortened.
func ServiceLabel(service string) string { return shorten(service, maxServiceLabel) }

// shorten replaces the end of a text by a digest of the whole text, if it is longer than allowed. Names of objects have
// no tilde.
func shorten(s string, allowed int) string {
	if len(s) <= allowed {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	digest := "~" + hex.EncodeToString(sum[:6])
	return s[:allowed-len(digest)] + digest
}
