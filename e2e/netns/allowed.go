//go:build !nokernel

package netns

const refused = false
