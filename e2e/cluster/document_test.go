//go:build e2e

package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// block is an indented piece of a document: commands, or a file whose first line is a comment with its name.
type block struct{ text string }

// chapter returns the blocks below a heading of config/deploy/README.md.
func chapter(t testing.TB, heading string) (list []block) {
	t.Helper()
	text, err := os.ReadFile("../../config/deploy/README.md")
	lab.Must(t, err)
	_, body, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("config/deploy/README.md has no chapter %q", heading)
	}
	body, _, _ = strings.Cut(body, "\n## ")
	current := ""
	for line := range strings.Lines(body + "\n") {
		if strings.HasPrefix(line, "    ") {
			current += line
		} else if current != "" {
			list = append(list, block{unindent(current)})
			current = ""
		}
	}
	if len(list) == 0 {
		t.Fatalf("the chapter %q of config/deploy/README.md has no commands", heading)
	}
	return list
}

// unindent removes the indentation of the first line from all lines.
func unindent(text string) string {
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(strings.TrimPrefix(line, indent))
	}
	return out.String()
}

// onNode is the first line of commands that the reader gives on each node.
const onNode = "# on each node\n"

// follow does what the chapters say, as a reader in the folder of the repository would do.
func (c *cluster) follow(t testing.TB, headings ...string) (took time.Duration) {
	t.Helper()
	began := time.Now()
	for _, h := range headings {
		for _, b := range chapter(t, h) {
			if err := c.obey(b); err != nil {
				t.Fatalf("config/deploy/README.md, %s: %v\n%s", h, err, c.state())
			}
		}
	}
	return time.Since(began)
}

func (c *cluster) obey(b block) error {
	if commands, found := strings.CutPrefix(b.text, onNode); found {
		for _, n := range c.nodes {
			out, err := n.output("bash", "-ec", "cd "+c.desk+"; PATH=$PWD/bin:$PATH; "+commands)
			if err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
		}
		return nil
	}
	first, _, _ := strings.Cut(b.text, "\n")
	if name, found := strings.CutPrefix(first, "# "); found {
		path := filepath.Join(c.desk, name)
		return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(b.text), 0o644))
	}
	cmd := exec.Command("bash", "-ec", b.text)
	cmd.Dir = c.desk
	if strings.HasPrefix(b.text, "make ") {
		cmd.Dir = "../.." // the desk has only links to the sources
	}
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "PATH="+c.binaries+":"+os.Getenv("PATH"))
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := c.place.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("%s%w\n%s", b.text, err, out.String())
	}
	return nil
}

// makeDesk makes the folder in which the reader works: it looks like the repository, but what he writes does not change
// the repository.
func (c *cluster) makeDesk() error {
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	c.desk = filepath.Join(c.dir, "desk")
	if err := os.Mkdir(c.desk, 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		err = errors.Join(err, os.Symlink(filepath.Join(root, e.Name()), filepath.Join(c.desk, e.Name())))
	}
	return err
}
