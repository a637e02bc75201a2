package metrics

import (
	"testing"

	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func TestOutliers(t *testing.T) {
	m := newTestMetrics(t)
	has(t, m, `
		verdict_outlier_suspicions_total{reason="unanswered"} 0
		verdict_outlier_endpoints{state="ejected"} 0
		verdict_check_failures_total{check="dns",reason="wrong answer"} 0
		verdict_services_on_backups 0
		verdict_outlier_deleted_connections_total 0`)
	ejected := endpointhealth.Status{State: endpointhealth.StateFailed, Ejected: true}
	m.Health(&endpointhealth.Report{
		Notes: []checks.Note{
			{Kind: checks.SuspicionBegan, Suspect: checks.Suspect{Reason: checks.Refusing}}, {Kind: checks.Fell},
		},
		Statuses: []endpointhealth.Status{ejected, ejected, ejected, {State: endpointhealth.StateSuspected}},
		Answers: map[endpointhealth.Answer]int{
			{Fault: probe.NoAnswer}: 1, {Kind: state.CheckHTTP}: 3, {Kind: state.CheckHTTP, Fault: probe.Refused}: 4,
		},
		Checks: 5, Failing: 2,
		OnBackups: 2,
	})
	m.FlowsCleaned([]conntrack.Result{{Family: state.IPv4, Unanswered: 5}})
	has(t, m, `
		verdict_outlier_suspicions_total{reason="refusing"} 1
		verdict_outlier_answers_total{answer="no answer"} 1
		verdict_outlier_failures_total{held=""} 1
		verdict_outlier_endpoints{state="ejected"} 3
		verdict_outlier_endpoints{state="failed"} 3
		verdict_outlier_endpoints{state="suspected"} 1
		verdict_outlier_deleted_connections_total 5
		verdict_checks{state="passing"} 3
		verdict_checks{state="failing"} 2
		verdict_check_answers_total{answer="good"} 3
		verdict_check_answers_total{answer="bad"} 4
		verdict_check_failures_total{check="http",reason="refused"} 4
		verdict_check_failures_total{check="tcp",reason="refused"} 0
		verdict_services_on_backups 2`)
}
