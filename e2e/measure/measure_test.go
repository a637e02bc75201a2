package measure

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

func TestQuantile(t *testing.T) {
	var hundred Sample
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i)) // 100 down to 1
	}
	tests := []struct {
		name   string
		sample Sample
		q      float64
		want   time.Duration
	}{
		{"nothing", nil, 0.5, 0},
		{"one", Sample{7}, 0.99, 7},
		{"median of an even number is the lower one", Sample{4, 1, 3, 2}, 0.5, 2},
		{"median of an odd number", Sample{9, 1, 5}, 0.5, 5},
		{"p99 of a hundred", hundred, 0.99, 99},
		{"p100", hundred, 1, 100},
		{"p0 is the smallest", hundred, 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.sample.Quantile(tt.q); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
	if hundred[0] != 100 {
		t.Error("taking a quantile sorted the sample itself")
	}
}

func TestMedianOf(t *testing.T) {
	for want, list := range map[float64][]float64{0: nil, 2: {3, 2, 1}, 1.5: {9, 1.5, 1, 8}} {
		if got := MedianOf(list); got != want {
			t.Errorf("median of %v: %v, want %v", list, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	table := Table{Head: []string{"", "µs"}}
	table.Add("long name", "1")
	table.Add("x") // missing cells are empty
	want := "|           | µs  |\n| ---       | --- |\n| long name | 1   |\n| x         |     |\n"
	if got := table.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		if got := Count(n); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 0.1234: "0.123", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 12345.6: "12,346"} {
		if got := Short(v); got != want {
			t.Errorf("Short(%v) = %q, want %q", v, got, want)
		}
	}
}

// TestInspect inspects a child that uses some memory and CPU time.
func TestInspect(t *testing.T) {
	cmd := exec.Command("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; read x")
	in, err := cmd.StdinPipe()
	lab.Must(t, err)
	lab.Must(t, cmd.Start())
	defer func() { in.Close(); cmd.Wait() }()
	var p Process
	for end := time.Now().Add(lab.Limit); p.CPU == 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if p, err = Inspect(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	if p.CPU == 0 || p.RSS == 0 || p.Peak < p.RSS || p.Name == "" {
		t.Errorf("%+v: want CPU time, memory, a peak not below it, and a name", p)
	}
	found := false
	for _, pid := range Children(os.Getpid()) {
		found = found || pid == cmd.Process.Pid
	}
	if !found {
		t.Errorf("%d is not among the children %v", cmd.Process.Pid, Children(os.Getpid()))
	}
	if _, err := Inspect(-1); err == nil {
		t.Error("no error for a process that does not exist")
	}
}

func TestThisMachine(t *testing.T) {
	m := ThisMachine()
	if m.CPU == "" || m.Kernel == "" || m.Cores < 1 || m.Memory < 1 || m.Go == "" || m.Load == "" {
		t.Errorf("incomplete: %+v", m)
	}
}

func TestPlot(t *testing.T) {
	p := Plot{Title: "a < b", X: "x", Y: "y", Lines: []Line{
		{Name: "one & two", Points: []Point{{X: 100, Y: 5}, {X: 1000, Y: 5.1}, {X: 10_000, Y: 6}}}, {Name: "three", Points: []Point{{X: 100, Y: 40}, {X: 10_000, Y: 350}}},
		{Name: "nothing was measured"},
	}}
	svg := p.SVG()
	mustBeXML(t, svg)
	for _, want := range []string{"a &lt; b", "one &amp; two", "three", ">10,000<", ">1,000<", ">350<", "NaN"} {
		if has := strings.Contains(svg, want); has != (want != "NaN") {
			t.Errorf("%q in the picture: %v", want, has)
		}
	}
	if strings.Contains(svg, "nothing was measured") {
		t.Error("a line without points has a name in the picture")
	}
	p.Groups = []string{"first sync", "one change"}
	p.Lines[0].Points = []Point{{X: 0, Y: 5}, {X: 1, Y: 900}}
	for _, want := range []string{">first sync<", ">one change<", ">900<"} {
		if svg := p.SVG(); !strings.Contains(svg, want) {
			t.Errorf("%q is not in the picture with groups", want)
		}
	}
	_ = (&Plot{}).SVG() // must not fail without data
}

func mustBeXML(t *testing.T, svg string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("not XML: %v\n%s", err, svg)
		}
	}
}

// TestDecades: an axis of 5 to 350 is marked at 1, 10, 100 and 1000.
func TestDecades(t *testing.T) {
	var labels []string
	for _, tick := range (decades{}).Ticks(5, 350) {
		if tick.Label != "" {
			labels = append(labels, tick.Label)
		}
	}
	if want := []string{"1", "10", "100", "1,000"}; !slices.Equal(labels, want) {
		t.Errorf("marks %q, want %q", labels, want)
	}
}
