// Package kubeproxyconfig reads and writes the configuration file of kube-proxy (KubeProxyConfiguration, version
// kubeproxy.config.k8s.io/v1alpha1) in terms of the flags of Verdict.
//
//	fields.go  the table: each field of the file, and the flag that it sets or why it sets none
//	read.go    strict decoding; an error names the path of the wrong field
//	values.go  from a file to values of flags, and back; fields by path, with reflection
package kubeproxyconfig
