// Package ipvs prepares IPVS on this host: modules, schedulers, sysctls and timeouts. Package ipvsctl has the engine.
//
//	ipvs.go     what IPVS can do here, and its engine; what an earlier process left in it
//	sysctls.go  the former values of the sysctls that IPVS needs
package ipvs
