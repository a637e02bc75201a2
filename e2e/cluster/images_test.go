//go:build e2e

package cluster

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
)

// imageName is the name of an image that only this test uses.
func imageName(name string) string { return "registry.example/" + name + ":e2e" }

// image is an image with one layer.
type image struct {
	name       string
	entrypoint []string
	files      map[string]string // path in the image -> file of this machine
	links      map[string]string // path in the image -> what the symbolic link names
}

// save writes the image as an archive that containerd imports ("docker save" writes the same). There is no registry.
func (i *image) save(dir string) (path string, err error) {
	layer := filepath.Join(dir, i.name+".layer")
	if err := i.writeLayer(layer); err != nil {
		return "", fmt.Errorf("make image %s: %w", i.name, err)
	}
	text, err := os.ReadFile(layer)
	if err != nil {
		return "", err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Entrypoint": i.entrypoint, "Env": []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(text))}},
	})
	if err != nil {
		return "", err
	}
	manifest, err := json.Marshal([]map[string]any{
		{"Config": "config.json", "RepoTags": []string{imageName(i.name)}, "Layers": []string{"layer.tar"}},
	})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, i.name+".tar")
	return path, writeTar(path, func(w *tar.Writer) error {
		for _, f := range []struct {
			name string
			text []byte
		}{{"manifest.json", manifest}, {"config.json", config}, {"layer.tar", text}} {
			if err := addFile(w, f.name, f.text, 0o644); err != nil {
				return err
			}
		}
		return nil
	})
}

func (i *image) writeLayer(path string) error {
	return writeTar(path, func(w *tar.Writer) error {
		for _, dir := range []string{"etc/", "tmp/", "run/", "proc/", "sys/", "dev/", "var/lib/"} {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
				return err
			}
		}
		for name, file := range i.files {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := addFile(w, name[1:], text, 0o755); err != nil {
				return err
			}
		}
		for name, to := range i.links {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name[1:], Linkname: to}); err != nil {
				return err
			}
		}
		return nil
	})
}

func writeTar(path string, fill func(*tar.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	if err := fill(w); err != nil {
		return err
	}
	return w.Close()
}

func addFile(w *tar.Writer, name string, text []byte, mode int64) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(text))}); err != nil {
		return err
	}
	_, err := w.Write(text)
	return err
}

// kubeProxyImage has kube-proxy with the programs that it runs, as upstream's image has.
func kubeProxyImage(binary string) (*image, error) {
	i := &image{
		name: "kube-proxy", entrypoint: []string{"/usr/local/bin/kube-proxy"},
		files: map[string]string{"/usr/local/bin/kube-proxy": binary}, links: map[string]string{},
	}
	for _, program := range []string{"nft", "xtables-nft-multi"} {
		path, err := exec.LookPath(program)
		if err != nil {
			return nil, fmt.Errorf("%w: install the packages nftables and iptables", err)
		}
		i.files["/usr/sbin/"+program] = path
	}
	for _, v := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			i.links["/usr/sbin/"+v+suffix] = "xtables-nft-multi"
		}
	}
	extensions, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	if err != nil {
		return nil, err
	}
	for _, e := range extensions {
		i.files[e] = e
	}
	return i, i.addLibraries()
}

var libraryLine = regexp.MustCompile(`(/\S+) \(0x`)

// addLibraries adds the libraries that programs of the image need. Kube-proxy is static and needs none.
func (i *image) addLibraries() error {
	programs := slices.DeleteFunc(valuesOf(i.files), func(p string) bool { return filepath.Base(p) == "kube-proxy" })
	out, err := exec.Command("ldd", programs...).Output()
	if err != nil {
		return fmt.Errorf("find the libraries of %v: %w", programs, err)
	}
	for _, m := range libraryLine.FindAllStringSubmatch(string(out), -1) {
		i.files[m[1]] = m[1]
	}
	return nil
}

func valuesOf(m map[string]string) (list []string) {
	for _, v := range m {
		list = append(list, v)
	}
	return list
}
