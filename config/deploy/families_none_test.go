//go:build nokernel

package deploy

func withFamilies() {}
