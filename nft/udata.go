package nft

import (
	"strings"

	"github.com/google/nftables/userdata"
)

// nft keeps user data in kernel objects, for its own listings: comments, byte orders, and the expressions that a set
// was declared with. This file writes the form of nft 1.0.6, which newer versions read, too. (The form of nft 1.1 makes
// 1.0.6 crash.) The numbers are from libnftnl's udata.h and nft's expression.h.

const (
	byteOrderUnknown uint32 = 0
	byteOrderHost    uint32 = 1
	byteOrderBig     uint32 = 2

	etypePayload uint32 = 7
	etypeMeta    uint32 = 9
	etypeConcat  uint32 = 13
	etypeNumgen  uint32 = 23

	// Parts of a "typeof" value: the kind of the expression, and its description.
	typeofKind userdata.Type = 0
	typeofBody userdata.Type = 1

	protoDescTransport uint32 = 11
	protoDescIPv4      uint32 = 12
	protoDescIPv6      uint32 = 13
)

// typeofExpr is an expression in nft's own serialization.
type typeofExpr []byte

func newTypeof(kind uint32, body []byte) typeofExpr {
	return userdata.Append(userdata.AppendUint32(nil, typeofKind, kind), typeofBody, body)
}

func typeofPriority() typeofExpr {
	const metaPriority = 2
	return newTypeof(etypeMeta, userdata.AppendUint32(nil, 0, metaPriority))
}

func typeofNumgen() typeofExpr {
	body := userdata.AppendUint32(nil, 0, 1)        // random
	body = userdata.AppendUint32(body, 1, maxSlots) // modulus
	return newTypeof(etypeNumgen, userdata.AppendUint32(body, 2, 0))
}

func typeofHeader(desc, fieldNumber uint32) typeofExpr {
	return newTypeof(etypePayload, userdata.AppendUint32(userdata.AppendUint32(nil, 0, desc), 1, fieldNumber))
}

func typeofDport() typeofExpr { return typeofHeader(protoDescTransport, 2) }

func (p program) typeofDaddr() typeofExpr {
	if p.family == IPv6 {
		return typeofHeader(protoDescIPv6, 9)
	}
	return typeofHeader(protoDescIPv4, 12)
}

// typeofList serializes one expression, or a concatenation of several.
func typeofList(list []typeofExpr) []byte {
	if len(list) == 1 {
		return list[0]
	}
	var inner []byte
	for i, e := range list {
		inner = userdata.Append(inner, userdata.Type(i), e)
	}
	return newTypeof(etypeConcat, inner)
}

// userData is the user data of the set. nft notes the byte order of single values only; a concatenation has none.
func (d *setDef) userData() []byte {
	out := userdata.AppendUint32(nil, userdata.NFTNL_UDATA_SET_KEYBYTEORDER, byteOrder(d.key))
	if d.isMap() {
		out = userdata.AppendUint32(out, userdata.NFTNL_UDATA_SET_DATABYTEORDER, byteOrder(d.data))
	}
	var key, data []typeofExpr
	if d.typeof != nil {
		key, data = d.typeof.key, d.typeof.data
	}
	out = appendTypeof(out, userdata.NFTNL_UDATA_SET_KEY_TYPEOF, d.key, key)
	out = appendTypeof(out, userdata.NFTNL_UDATA_SET_DATA_TYPEOF, d.data, data)
	if d.isMap() {
		out = userdata.AppendUint32(out, userdata.NFTNL_UDATA_SET_DATA_INTERVAL, 0) // the data are not ranges
	}
	return out
}

// appendTypeof writes the expressions of a key or of data. For several plain types, nft writes an empty concatenation.
func appendTypeof(out []byte, attr userdata.Type, types []dataType, exprs []typeofExpr) []byte {
	switch {
	case exprs != nil:
		return userdata.Append(out, attr, typeofList(exprs))
	case len(types) > 1:
		return userdata.Append(out, attr, newTypeof(etypeConcat, nil))
	}
	return out
}

func byteOrder(types []dataType) uint32 {
	if len(types) > 1 {
		return byteOrderUnknown
	}
	switch types[0].name {
	case typeClassID.name:
		return byteOrderHost
	case typeIPv4.name, typeIPv6.name, typeService.name:
		return byteOrderBig
	}
	return byteOrderUnknown
}

// findUserData is userdata.Get for bytes that any program may have written: the library reads past their end.
func findUserData(udata []byte, kind userdata.Type) []byte {
	for len(udata) >= 2 {
		end := 2 + int(udata[1])
		if end > len(udata) {
			return nil
		}
		if userdata.Type(udata[0]) == kind {
			return udata[2:end]
		}
		udata = udata[end:]
	}
	return nil
}

// readComment reads the comment of a table or an element; empty: it has none.
func readComment(udata []byte) string {
	return strings.TrimRight(string(findUserData(udata, userdata.TypeComment)), "\x00")
}
