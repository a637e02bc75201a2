// Package environment derives from the settings, the Node object and the host's addresses what holds for all Services
// alike: for planning, for the engines, and for the register of claims. environment.go has all of it.
package environment
