package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
)

// ErrQuestion marks a question that makes no sense.
var ErrQuestion = errors.New("this cannot be explained")

// Answer explains a connection as the command does, for other parts of the daemon. The destination can also be a Service
// (namespace/name). It does not ask the API server, so the source must not be a pod.
func Answer(source, destination string) (list []*Explanation, err error) {
	o, args := options{trace: tracing{packets: 1}}, []string{source, destination}
	if strings.Contains(destination, "/") && !strings.ContainsAny(strings.SplitN(destination, "/", 2)[0], ".:") {
		o.service, o.from, args = destination, source, nil
	}
	if strings.HasPrefix(source, "pod/") {
		return nil, fmt.Errorf("%w: give the address of the pod as source; the command knows names of pods", ErrQuestion)
	}
	wanted, source, err := o.targets(args)
	if err != nil {
		return nil, asQuestion(err)
	}
	k, err := openLive()
	if err != nil {
		return nil, err
	}
	defer k.Close()
	questions, err := o.withSource(context.Background(), k, wanted, source)
	if err != nil {
		return nil, asQuestion(err)
	}
	for _, q := range questions {
		e, err := explain(k, q)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

func asQuestion(err error) error {
	if mistake := (flags.UsageError{}); errors.As(err, &mistake) {
		return fmt.Errorf("%w: %w", ErrQuestion, mistake)
	}
	return err
}
