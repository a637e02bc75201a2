package metrics

import "testing"

func TestOutliers(t *testing.T) {
	m := newTestMetrics(t)
	has(t, m, `
		verdict_outlier_suspicions_total{reason="unanswered"} 0
		verdict_outlier_endpoints{state="ejected"} 0
		verdict_outlier_deleted_connections_total 0`)
	m.Suspected("refusing")
	m.OutlierAnswered("silent")
	m.OutlierFailure("")
	m.Outliers(OutlierEjected, 3)
	m.ConnectionsDeleted(5)
	m.Checks(5, 2)
	m.CheckAnswers(3, 4)
	has(t, m, `
		verdict_outlier_suspicions_total{reason="refusing"} 1
		verdict_outlier_answers_total{answer="silent"} 1
		verdict_outlier_failures_total{held=""} 1
		verdict_outlier_endpoints{state="ejected"} 3
		verdict_outlier_deleted_connections_total 5
		verdict_checks{state="passing"} 3
		verdict_checks{state="failing"} 2
		verdict_check_answers_total{answer="good"} 3
		verdict_check_answers_total{answer="bad"} 4`)
}
