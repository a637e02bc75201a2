package events

import (
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
)

// outlierTopic is the time within which the nodes of a cluster raise one Event for the same Service: they notice a dead
// node within seconds.
const outlierTopic = 10 * time.Minute

// Outlier raises an Event when endpoints of a Service begin to fail.
func (e *Recorder) Outlier(episode endpointhealth.Episode, now time.Time) {
	e.Post(Event{
		Service: episode.Service, Reason: episode.Reason, Text: episode.Text, Topic: now.Truncate(outlierTopic).String(),
	})
}
