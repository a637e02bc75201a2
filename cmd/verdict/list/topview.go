package list

import (
	"errors"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
)

// topView is the live view. It reads the kernel in a command of bubbletea, so keys work meanwhile.
type topView struct {
	*top
	width, height int
	busy          bool // a command reads, and owns what was measured
	shown         string
	err           error
}

// measured means that the latest reading has ended.
type measured struct{ err error }

// live draws until q or the end of the context.
func (t *top) live(cmd *cobra.Command) error {
	t.daemon = daemonLines(socket.NewClient(), time.Now())
	v := &topView{top: t, width: 80, height: 24}
	_, err := tea.NewProgram(v, tea.WithContext(cmd.Context()), tea.WithAltScreen(), tea.WithOutput(cmd.OutOrStdout())).Run()
	if errors.Is(err, tea.ErrProgramKilled) && cmd.Context().Err() != nil {
		err = nil // the context ended it
	}
	return errors.Join(err, v.err)
}

// Init implements tea.Model.
func (v *topView) Init() tea.Cmd { return v.next() }

// next reads after an interval.
func (v *topView) next() tea.Cmd {
	return tea.Tick(v.interval, func(time.Time) tea.Msg { return tick{} })
}

// tick means that an interval has ended.
type tick struct{}

// Update implements tea.Model.
func (v *topView) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch m := message.(type) {
	case tea.WindowSizeMsg:
		v.width, v.height = m.Width, m.Height
	case tea.KeyMsg:
		return v, v.key(m.String())
	case tick:
		if v.busy {
			return v, v.next()
		}
		v.busy = true
		return v, func() tea.Msg { return measured{v.measure()} }
	case begun:
		v.busy = false
		v.err = m.err
		return v, v.orEnd(nil)
	case measured:
		v.busy = false
		v.err = m.err
		return v, v.orEnd(v.next())
	}
	return v, nil
}

// orEnd ends the program if a reading failed.
func (v *topView) orEnd(next tea.Cmd) tea.Cmd {
	if v.err != nil {
		return tea.Quit
	}
	return next
}

// begun means that a new way of counting has begun.
type begun struct{ err error }

func (v *topView) key(key string) tea.Cmd {
	switch {
	case key == "q" || key == "ctrl+c":
		return tea.Quit
	case v.busy:
		return nil
	case key == "e":
		v.ends, v.loads, v.busy = !v.ends, nil, true
		return func() tea.Msg { return begun{v.begin()} }
	}
	if column, ok := sortKeys()[key]; ok {
		v.sort = column
	}
	return nil
}

// View implements tea.Model.
func (v *topView) View() string {
	if !v.busy {
		v.shown = v.screen(v.width, v.height)
	}
	return v.shown
}
