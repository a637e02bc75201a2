package lab

import (
	"os"
	"path/filepath"
)

// WriteFile puts a file into a folder in one step. Whoever watches the folder never reads half of the file.
func WriteFile(dir, name string, text []byte) error {
	part := filepath.Join(dir, "."+name)
	if err := os.WriteFile(part, text, 0o644); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(dir, name))
}
