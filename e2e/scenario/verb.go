package scenario

// Verb is everything that the language knows about one verb, which is the first word of a step. The code that takes the
// step is in package runner.
type Verb struct {
	Name string
	// Arguments is the grammar of what follows the name. Words in capitals stand for values; [a] may be left out; a | b
	// is either of the two.
	Arguments string
	// Examples are steps that use every form of Arguments.
	Examples []string
	// Help says in Markdown what the step does.
	Help string
	Kind Kind
	// read makes the step out of its arguments. It reports mistakes to them.
	read func(*arguments) any
}

// Kind says what the runner does before and after a step.
type Kind int

// The kinds of steps.
const (
	// Change steps are taken at once, whether or not the proxy has followed earlier changes.
	Change Kind = iota
	// Settled steps are taken when the proxy has followed all earlier changes. They check nothing.
	Settled
	// Check steps are taken when the proxy has followed all earlier changes. They check something and are counted.
	Check
)
