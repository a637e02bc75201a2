package runner

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// source takes objects and offers them to the proxy.
type source interface {
	// Put creates or replaces an object, with its status.
	Put(scenario.Object) error
	Delete(scenario.Object) error
	// Arguments are the flags that tell the proxy where to read.
	Arguments() []string
}

// key identifies an object.
func key(o scenario.Object) string { return o.Kind() + "/" + o.Namespace() + "/" + o.Name() }

// manifests writes objects into a folder, one file for each object.
type manifests struct{ dir string }

// Arguments implements source.
func (s *manifests) Arguments() []string { return []string{"--manifests=" + s.dir} }

func (s *manifests) path(o scenario.Object) string {
	return filepath.Join(s.dir, strings.ReplaceAll(key(o), "/", "_")+".json")
}

// Put implements source. The proxy never sees an incomplete file, because a rename puts it in place.
func (s *manifests) Put(o scenario.Object) error {
	text, err := json.MarshalIndent(o, "", "  ")
	if err == nil {
		err = lab.WriteFile(s.dir, filepath.Base(s.path(o)), text)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", key(o), err)
	}
	return nil
}

// Delete implements source.
func (s *manifests) Delete(o scenario.Object) error {
	if err := os.Remove(s.path(o)); err != nil {
		return fmt.Errorf("delete %s: %w", key(o), err)
	}
	return nil
}
