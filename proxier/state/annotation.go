package state

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// AnnotationPrefix begins the keys of Verdict's own annotations.
const AnnotationPrefix = "verdict-proxy.github.io/"

// AnnotationField is the field of an object that a Problem about an annotation names.
func AnnotationField(key string) string { return "metadata.annotations[" + key + "]" }

// Annotation is an annotation that Verdict reads. The converter of package source, the table of config/README.md, the
// test of "verdict list" and the completion of flags follow from it.
type Annotation struct {
	Key     string
	Aliases []Alias // keys of other proxies. They count where Key has no usable value, in this order.
	Help    string  // the values, as config/README.md describes them
	Engines string  // the engines that honor it, as config/README.md describes them
	Example string  // a value other than the default
	// Shown is the field by which "verdict list --json" shows the effect, with dots between the levels; "": none.
	Shown string
	// Flag is the flag of "verdict run" with the same values, and Words are what a shell offers for it.
	Flag  string
	Words []string
	// Otherwise says what happens if the value is wrong.
	Otherwise string
	// Longest is how many bytes a value may have. A text may have any character, other values only those of words.
	Longest int
	Text    bool
	// Service sets the field of a Service, Slice that of an EndpointSlice. One of them is nil.
	Service func(*Service, string) error
	Slice   func(*Slice, string) error
}

// Alias is an annotation of another proxy that means the same.
type Alias struct {
	Key string
	// Values translates values. A value that it lacks is wrong. nil: the values are the same.
	Values map[string]string
}

// longestWord and longestText are the usual limits. A longer value would be held as long as the object exists.
const (
	longestWord = 64
	longestText = 512
)

const ignored = "the annotation is ignored"

// Annotations lists the annotations of Services, and then those of EndpointSlices.
func Annotations() []Annotation {
	return slices.Concat(balancingAnnotations(), frontendAnnotations(), healthAnnotations(), sliceAnnotations())
}

// balancingAnnotations are those that set a field of Balancing.
func balancingAnnotations() []Annotation {
	return []Annotation{{
		Key: AnnotationPrefix + "scheduler", Example: "mh", Longest: longestWord, Otherwise: ignored,
		Aliases: []Alias{
			{Key: "kube-router.io/service.scheduler"},
			{Key: "service.cilium.io/lb-algorithm", Values: map[string]string{"random": "random", "maglev": "mh"}},
			{Key: "lb.projectcalico.org/external-traffic-strategy", Values: map[string]string{"maglev": "mh"}},
		},
		Help:    "a [scheduler](#schedulers); default `random`",
		Engines: "nft, IPVS", Shown: "scheduler",
		Service: func(s *Service, value string) error { s.Balancing.Scheduler = value; return nil },
	}, {
		Key: AnnotationPrefix + "scheduler-flags", Example: "mh-port", Longest: longestWord, Otherwise: ignored,
		Aliases: []Alias{{Key: "kube-router.io/service.schedflags"}},
		Help: "`sh-port` or `mh-port` (`flag-2`): hash the client's port together with its address (`sh-fallback` and " +
			"`mh-fallback`, `flag-1`, are always on)",
		Engines: "nft, IPVS", Shown: "schedulerFlags",
		Service: func(s *Service, value string) error { s.Balancing.Flags = value; return nil },
	}, {
		Key: AnnotationPrefix + "forwarding", Example: "route", Longest: longestWord, Otherwise: ignored,
		Help: "`nat` (default), `route` or `tunnel`: how packets to external and load balancer IPs reach endpoints; see " +
			"[forwarding](../ipvsctl/README.md#forwarding-without-nat)",
		Engines: "IPVS", Shown: "endpoints.options",
		Service: func(s *Service, value string) error {
			if s.Balancing.Forwarding = Forwarding(value); value == "nat" {
				s.Balancing.Forwarding = NAT
			}
			return nil
		},
	}}
}

// frontendAnnotations are those of Services about their frontends.
func frontendAnnotations() []Annotation {
	return []Annotation{{
		Key: AnnotationPrefix + "port-ranges", Example: "80-90", Longest: longestText,
		Help: "`5000-6000`, or several separated by commas: the service port 5000 stands for all these ports; see " +
			"[port ranges](#port-ranges)",
		Engines: "nft", Shown: "lastPort", Otherwise: "the annotation is ignored, and its ports are no ranges",
		Service: func(s *Service, value string) error { return s.setPortRanges(value) },
	}, {
		Key: AnnotationPrefix + "fast-path", Example: "off", Longest: longestWord,
		Help:    "`off`: its connections never take the [fast path](../nft/README.md#the-fast-path), whatever `--fast-path` says",
		Engines: "nft", Otherwise: "--fast-path decides",
		Service: func(s *Service, value string) error {
			if s.SlowPath = value == "off"; !s.SlowPath {
				return fmt.Errorf("%s is not off", Quote(value))
			}
			return nil
		},
	}, {
		Key: AnnotationPrefix + "weights", Example: "eu-1a=3,node-7=0", Longest: longestText, Text: true,
		Help: "`eu-1a=3,node-7=0`: the weight of endpoints by the name of their node, or else of their zone; others have that of " +
			"their slice. See [weights](#weights)",
		Engines: "nft, IPVS", Shown: "endpoints.weight", Otherwise: ignored,
		Service: func(s *Service, value string) (err error) { s.Weights, err = parseWeights(value); return err },
	}}
}

// setPortRanges makes ports of the Service the first ports of ranges. It changes nothing if one of the ranges is wrong.
func (s *Service) setPortRanges(value string) error {
	last := map[uint16]uint16{}
	for text := range strings.SplitSeq(value, ",") {
		from, to, err := ParsePorts(strings.TrimSpace(text))
		switch {
		case err != nil:
			return err
		case to == 0:
			return fmt.Errorf("%s is not a range such as 5000-6000", Quote(text))
		case last[from] != 0:
			return fmt.Errorf("port %d begins two ranges", from)
		case !slices.ContainsFunc(s.Ports, func(p ServicePort) bool { return p.Port == from }):
			return fmt.Errorf("the Service has no port %d, which would be the first one of %s", from, Quote(text))
		}
		last[from] = to
	}
	for i := range s.Ports {
		s.Ports[i].EndPort = last[s.Ports[i].Port]
	}
	return nil
}

// healthAnnotations are those of Services about the health of endpoints.
func healthAnnotations() []Annotation {
	return []Annotation{{
		Key: AnnotationPrefix + "outlier-detection", Example: "eject,refusals", Longest: longestWord,
		Help: "`off`, `observe` or `eject`, and `refusals` after a comma; see " +
			"[endpoints that do not answer](../proxier/endpointhealth/README.md#endpoints-that-do-not-answer)",
		Engines: "nft, IPVS", Shown: "endpoints.outlier", Flag: "outlier-detection", Words: []string{"off", "observe", "eject"},
		Otherwise: "--outlier-detection decides",
		Service:   func(s *Service, value string) (err error) { s.Outliers, err = ParseOutliers(value); return err },
	}, {
		Key: AnnotationPrefix + "health-check", Example: "https path=/healthz server-name=a.example port=8443", Longest: longestText, Text: true,
		Help: "an active check, such as `http path=/healthz interval=5s`, or `off`; see " +
			"[active checks](../proxier/endpointhealth/README.md#active-checks)",
		Engines: "nft, IPVS", Shown: "endpoints.outlier", Flag: "health-check", Words: []string{"off", "tcp", "http", "https", "dns"},
		Otherwise: ignored,
		Service: func(s *Service, value string) error {
			check, err := ParseHealthCheck(value)
			if err == nil {
				s.Check = &check
			}
			return err
		},
	}, {
		Key: AnnotationPrefix + "on-all-down", Example: "reject", Longest: longestWord,
		Help:    "`keep`, `reject` or `backup`; see [backups](../proxier/endpointhealth/README.md#backups)",
		Engines: "nft, IPVS", Shown: "refusal", Otherwise: "keep is used",
		Service: func(s *Service, value string) (err error) { s.AllDown, err = ParseAllDown(value); return err },
	}, {
		Key: AnnotationPrefix + "on-removal", Example: "reset", Longest: longestWord,
		Help:    "`keep` or `reset`; see [open connections](../proxier/endpointhealth/README.md#open-connections)",
		Engines: "nft", Otherwise: "keep is used",
		Service: func(s *Service, value string) (err error) { s.OnRemoval, err = ParseOnRemoval(value); return err },
	}}
}

// sliceAnnotations are those of EndpointSlices.
func sliceAnnotations() []Annotation {
	return []Annotation{{
		Key: AnnotationPrefix + "backup", Example: "true", Longest: longestWord,
		Help:    "`true`: its endpoints get connections only while no other endpoint is good",
		Engines: "nft, IPVS", Shown: "endpoints.outlier", Otherwise: "the endpoints are no backup",
		Slice: func(s *Slice, value string) error {
			if value != "true" && value != "false" {
				return fmt.Errorf("%s is not true or false", Quote(value))
			}
			s.Backup = value == "true"
			return nil
		},
	}, {
		Key: AnnotationPrefix + "weight", Example: "7", Longest: longestWord, Aliases: []Alias{{Key: "service.cilium.io/weight"}},
		Help:    "0 to 65535, default 1: the share of new connections; 0: no new connections",
		Engines: "nft, IPVS", Shown: "endpoints.weight", Otherwise: fmt.Sprintf("weight %d is used", DefaultWeight),
		Slice: func(s *Slice, value string) error {
			weight, err := parseWeight(value)
			if err == nil {
				s.Weight = weight
			}
			return err
		},
	}}
}

func parseWeight(value string) (uint16, error) {
	weight, err := strconv.ParseUint(value, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%s is not a number from 0 to 65535", Quote(value))
	}
	return uint16(weight), nil
}

func parseWeights(value string) (list []NamedWeight, err error) {
	for text := range strings.SplitSeq(value, ",") {
		name, number, _ := strings.Cut(strings.TrimSpace(text), "=")
		weight, err := parseWeight(number)
		if err != nil || name == "" || slices.ContainsFunc(list, func(w NamedWeight) bool { return w.Name == name }) {
			return nil, fmt.Errorf("%s is not another node or zone with a weight from 0 to 65535, such as eu-1a=3", Quote(text))
		}
		list = append(list, NamedWeight{name, weight})
	}
	return list, nil
}

// WeightOf returns the weight of an endpoint of one of the slices of the Service.
func (s *Service) WeightOf(e *Endpoint, of *Slice) uint16 {
	for _, name := range [...]string{e.Node, e.Zone} {
		for i := range s.Weights {
			if s.Weights[i].Name == name {
				return s.Weights[i].Weight
			}
		}
	}
	return of.Weight
}

// ParseOutliers parses a mode, "refusals", or both, separated by a comma.
func ParseOutliers(value string) (d OutlierDetection, err error) {
	modes := map[string]OutlierMode{"off": OutlierOff, "observe": OutlierObserve, "eject": OutlierEject}
	for word := range strings.SplitSeq(value, ",") {
		mode, known := modes[strings.TrimSpace(word)]
		switch {
		case strings.TrimSpace(word) == "refusals" && !d.Refusals:
			d.Refusals = true
		case known && d.Mode == OutlierDefault:
			d.Mode = mode
		default:
			return OutlierDetection{}, fmt.Errorf("%s is not off, observe or eject, with or without \",refusals\"", Quote(value))
		}
	}
	return d, nil
}
