package kernel

import (
	"errors"
	"fmt"
	"strings"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// NFTables is what the engine needs of nf_tables. Conn is the real one. Tests inject faults between the engine and its kernel.
type NFTables interface {
	// Send applies a batch as a whole, or nothing of it.
	Send(*Batch) (Outcome, *nlmsg.Ack, error)
	// Capacity is the size of the largest batch that send takes, in bytes.
	Capacity() int
	Reader
	// ReadSet begins to read a set or map. Other requests can come between its parts.
	ReadSet(f program.Family, set program.SetID) (SetReader, error)
	// Flowtables reads the flowtables of our table, by name.
	Flowtables(f program.Family) (map[string]FoundFlowtable, error)
	Close() error
}

// Reader is what readers need of nf_tables.
type Reader interface {
	// Generation is the number of the latest change of any table.
	Generation() (uint32, error)
	// Survey reads what exists of our table, without elements.
	Survey(f program.Family) (Existing, error)
	// SurveyTable, SurveyChains and SurveySets read less: whether there is a table, and of which layout, and its chains or sets.
	SurveyTable(f program.Family) (Existing, error)
	SurveyChains(f program.Family) (Existing, error)
	SurveySets(f program.Family) (Existing, error)
	// DumpElements reads all elements of a set or map. Their bytes are valid until each returns.
	DumpElements(f program.Family, set program.SetID, each func(Found)) error
	// LookupRow asks for several elements and hands over what they hold, up to the first one that does not exist. It
	// returns how many exist.
	LookupRow(f program.Family, set program.SetID, keys [][]byte, each func(Found)) (found int, err error)
	// Lookup asks for one element.
	Lookup(f program.Family, set program.SetID, key []byte) (e Found, found bool, err error)
}

// ReadRow asks for the data of consecutive slots, up to the first one that does not exist.
func ReadRow(k Reader, f program.Family, set program.SetID, number, slots uint32, each func(data []byte)) error {
	for first := uint32(0); first < slots; first += RowLength {
		keys := make([][]byte, min(RowLength, slots-first))
		for i := range keys {
			var b program.Builder
			b.Word(number)
			b.Word(first + uint32(i))
			keys[i] = b.Arena
		}
		found, err := k.LookupRow(f, set, keys, func(e Found) { each(e.Data) })
		if err != nil || found < len(keys) {
			return err
		}
	}
	return nil
}

// RowLength is how many elements one request asks for. The answers fit in the socket buffer of an ordinary user.
const RowLength = 128

// ErrUnknownProgram means that a version of Verdict with other rules wrote the tables.
var ErrUnknownProgram = errors.New("another version of Verdict wrote this table, and its rules differ from those of " +
	"this version; use the version that wrote it")

// Identify finds the program whose fingerprint is in the stamp of the table.
func Identify(k Reader, f program.Family) (program.Program, error) {
	fingerprint := ""
	err := k.DumpElements(f, program.Generation, func(e Found) { fingerprint = e.Comment })
	if err != nil {
		return program.Program{}, err
	}
	words := strings.SplitN(fingerprint, " ", 3)
	p := program.Parse(f, words[len(words)-1])
	if defs := p.Sets(); p.Fingerprint(defs[:]) == fingerprint {
		return p, nil
	}
	return program.Program{}, fmt.Errorf("%w (its stamp is %q)", ErrUnknownProgram, fingerprint)
}
