package nft

// Intact has the next Apply compare everything if Check finds something.
func (e *Engine) Intact() (bool, error) {
	i, err := e.FindInterference()
	if !i.Empty() {
		e.distrust()
	}
	return err == nil && e.mode == synced, err
}
