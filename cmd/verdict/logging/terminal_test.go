package logging

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/config"
)

// terminal opens both ends of a new terminal: what a program writes into the first one is read from the second one.
func terminal(t *testing.T) (program, reader *os.File) {
	t.Helper()
	reader, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reader.Close() })
	number, err := unix.IoctlGetInt(int(reader.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(reader.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return program, reader
}

// logged is one line of the log, written to a file and read from another one.
func logged(t *testing.T, format string, to, from *os.File) string {
	t.Helper()
	s := config.Default()
	s.LogFormat = format
	New(to, &s).Error("a request failed", "resource", "pods", "err", "no route") //nolint:sloglint // the key of client-go
	var line strings.Builder
	for !strings.HasSuffix(line.String(), "\n") { // a terminal may deliver the text and the end of the line apart
		buffer := make([]byte, 4096)
		n, err := from.Read(buffer)
		if err != nil {
			t.Fatalf("read the rest of %q: %v", line.String(), err)
		}
		line.Write(buffer[:n])
	}
	return line.String()
}

// TestLogOnTerminal: a terminal shows colored lines, unless the format is json. A pipe gets plain lines with the same keys.
func TestLogOnTerminal(t *testing.T) {
	const escape = "\x1b["
	program, reader := terminal(t)
	colored := logged(t, "text", program, reader)
	for _, part := range []string{escape, "a request failed", "pods", "error=", "no route"} {
		if !strings.Contains(colored, part) {
			t.Errorf("the line on a terminal lacks %q: %q", part, colored)
		}
	}
	if strings.Contains(colored, "level=") {
		t.Errorf("the line on a terminal is a plain one: %q", colored)
	}
	var fields map[string]string
	if line := logged(t, "json", program, reader); json.Unmarshal([]byte(line), &fields) != nil || fields["error"] != "no route" {
		t.Errorf("the line on a terminal with --log-format=json: %q", line)
	}
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	defer to.Close()
	if line := logged(t, "text", to, from); strings.Contains(line, escape) || !strings.Contains(line, `level=ERROR msg="a request failed" resource=pods error="no route"`) {
		t.Errorf("the line in a pipe: %q", line)
	}
}
