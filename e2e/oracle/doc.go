// Package oracle is a small model of the Service API. For any state of a cluster and the first packet of any connection, it
// answers what a Service proxy has to do: which endpoints may get the connection and whose address they see, or that it is
// refused, dropped, or left alone.
//
// It was written from the documentation of the API (kubernetes.io: Service, virtual IPs and service proxies, EndpointSlice,
// topology aware routing, KEPs 1669, 2086, 2433 and 3015) and from what the READMEs of this project promise beyond it. It
// shares no code with package plan, and it is written in another way: it searches lists, again for each packet.
//
//	model.go     the answer
//	flows.go     which flows go on when the cluster changes
//	endpoints.go which endpoints may get a connection
//	random.go    random states, and packets that matter for them
package oracle
