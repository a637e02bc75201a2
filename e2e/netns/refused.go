//go:build nokernel

package netns

const refused = true
