// Package config holds the settings of the daemon: their defaults and their validation. It neither reads flags nor acts
// on the settings. Tags name the flags, and cmd/verdict/flags binds them.
//
//	config.go   the settings, their defaults and their validation; budgets: what tenants may cost
//	upstream.go those of the host, and those that exist because kube-proxy has them
package config
