//go:build race

package program

const race = true
