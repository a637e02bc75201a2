package nft

// Intact has the next Apply compare everything if Check finds something.
func (e *Engine) Intact() (bool, error) {
	i, err := e.Check()
	e.rebuild = e.rebuild || !i.Empty()
	return err == nil && !e.rebuild, err
}
