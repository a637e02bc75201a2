package list

import (
	"errors"
	"strings"
	"sync"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
)

// topView is the live view. It reads the kernel in a command of bubbletea, so keys work in that time.
type topView struct {
	*top
	width, height int
	busy          bool // a command reads, and owns what was measured
	shown         string
	err           error

	reading sync.Mutex // held by the command that reads: bubbletea does not wait for its end
	ended   bool
}

// live draws until q or the end of the context.
func (t *top) live(cmd *cobra.Command) error {
	t.daemon = daemonLines(socket.NewClient(), time.Now())
	v := &topView{top: t, width: 80, height: 24}
	_, err := tea.NewProgram(v, tea.WithContext(cmd.Context()), tea.WithAltScreen(), tea.WithOutput(cmd.OutOrStdout())).Run()
	v.reading.Lock()
	defer v.reading.Unlock()
	v.ended = true
	if errors.Is(err, tea.ErrProgramKilled) && cmd.Context().Err() != nil {
		err = nil // the context ended it
	}
	return errors.Join(err, v.err)
}

// tick means that an interval has ended, measured that the reading after it has.
type (
	tick     struct{}
	measured struct{ err error }
)

// Init implements tea.Model.
func (v *topView) Init() tea.Cmd {
	return tea.Tick(v.interval, func(time.Time) tea.Msg { return tick{} })
}

// Update implements tea.Model.
func (v *topView) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch m := message.(type) {
	case tea.WindowSizeMsg:
		v.width, v.height = m.Width, m.Height
	case tea.KeyMsg:
		return v, v.key(m.String())
	case tick:
		v.busy = true
		return v, v.read
	case measured:
		v.busy = false
		if v.err = m.err; v.err != nil {
			return v, tea.Quit
		}
		return v, v.Init()
	}
	return v, nil
}

// read measures, unless the view has ended: what it uses is closed then.
func (v *topView) read() tea.Msg {
	v.reading.Lock()
	defer v.reading.Unlock()
	if v.ended {
		return nil
	}
	return measured{v.measure()}
}

func (v *topView) key(key string) tea.Cmd {
	switch {
	case key == "q" || key == "ctrl+c":
		return tea.Quit
	case v.busy || len(key) != 1:
		return nil
	case key == "e":
		v.ends, v.rows = !v.ends, nil
	}
	for _, column := range topColumns() {
		if strings.HasPrefix(column, key) {
			v.sort = column
		}
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
