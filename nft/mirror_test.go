package nft

// render prints both tables from the engine's mirror.
func (e *Engine) render() string {
	t := &Transaction{}
	for _, tb := range e.tables {
		tb.build(t, existing{})
		tb.writeShared(t)
	}
	var b batch
	k := &memoryKernel{}
	if err := b.encode(t); err != nil {
		return err.Error()
	}
	if _, _, err := k.send(&b); err != nil {
		return err.Error()
	}
	return k.String()
}
