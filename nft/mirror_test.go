package nft

import (
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/memory"
	"github.com/verdict-proxy/verdict/nft/program"
)

// render prints both tables from the engine's mirror.
func (e *Engine) render() string {
	t := &program.Transaction{}
	for _, tb := range e.tables {
		tb.Build(t.For(tb.Family), kernel.Existing{})
	}
	var b kernel.Batch
	k := &memory.Kernel{}
	if err := b.Encode(t); err != nil {
		return err.Error()
	}
	if _, _, err := k.Send(&b); err != nil {
		return err.Error()
	}
	return k.String()
}
