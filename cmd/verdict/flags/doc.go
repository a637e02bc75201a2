// Package flags has the flags of the commands, and the configuration file of kube-proxy, as settings.
//
//	flags.go        a flag for each setting, from the tags of package config; flags of kube-proxy without effect, or with another name
//	commandline.go  the flags of "verdict run", the configuration file and the defaults of kube-proxy's modes together
//	reload.go       changes of the configuration file while the daemon runs
package flags
