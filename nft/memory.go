package nft

import (
	"cmp"

	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/memory"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Content reads the tables in memory.
func (m *Memory) Content() ([]inspect.Line, error) { return inspect.ContentFrom(m.kernel) }

// Tables reads the kernel in memory.
func (m *Memory) Tables() *inspect.Tables { return inspect.NewTables(m.kernel, m.kernel.Close) }

// Memory is an Engine over a kernel in memory. It needs no privileges and changes nothing on the host. Its kernel
// applies each transaction as a whole. It refuses what nf_tables refuses: elements that clash, names that do not exist,
// and deletions of objects in use. It has no packets: it does not evaluate rules, and the affinity map stays empty.
type Memory struct {
	*Engine
	kernel *memory.Kernel
}

// OpenMemory makes an engine over an empty kernel in memory. Options.NetNS has no meaning there.
func OpenMemory(o Options) *Memory {
	k := &memory.Kernel{}
	o.Instance = cmp.Or(o.Instance, 1) // equal histories print as equal texts
	return &Memory{Engine: newEngine(k, o), kernel: k}
}

// Restart makes a second engine over the same kernel, as a new process does. The first engine must not be used any
// more.
func (m *Memory) Restart(o Options) (*Memory, error) {
	o.Instance = cmp.Or(o.Instance, m.instance+1)
	e := newEngine(m.kernel, o)
	if err := e.tables.Adopt(m.kernel); err != nil {
		return nil, err
	}
	return &Memory{Engine: e, kernel: m.kernel}, nil
}

// Record makes the kernel in memory call write with the text of each transaction that it applies, in nft syntax and in
// order. Write must not use the Memory.
func (m *Memory) Record(write func(text string)) {
	m.kernel.Record = write
}

// String prints what the kernel in memory has, in a form that "nft -f" reads. Elements are sorted, so equal contents
// print as equal texts. Any goroutine may call it.
func (m *Memory) String() string { return m.kernel.String() }

// List reads the kernel in memory, as the function List reads the real one. Any goroutine may call it.
func (m *Memory) List(match func(name string) bool) (inspect.Listing, error) {
	both := program.Families()
	return inspect.ListFrom(m.kernel, both[:], match)
}
