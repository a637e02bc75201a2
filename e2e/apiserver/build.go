package apiserver

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build builds etcd, kube-apiserver or kube-proxy, unless the cache has them; no names: all three. It returns the folder
// that has them. The first time takes minutes. A kernel in the emulator cannot build: there, VERDICT_CONTROL_PLANE names
// the folder.
func Build(names ...string) (dir string, err error) {
	if dir := os.Getenv("VERDICT_CONTROL_PLANE"); dir != "" {
		return dir, nil
	}
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the folder of the module: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(mod)))
	var out bytes.Buffer
	cmd := exec.Command(filepath.Join(root, "e2e/controlplane/build.sh"), names...)
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build the control plane: %w", err)
	}
	return strings.TrimSpace(out.String()), nil
}
