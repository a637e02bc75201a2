package convert

// Keys that tests use.
const (
	annotationScheduler       = "verdict-proxy.github.io/scheduler"
	annotationSchedulerRouter = "kube-router.io/service.scheduler"
	annotationForwarding      = "verdict-proxy.github.io/forwarding"
	annotationSchedulerFlags  = "verdict-proxy.github.io/scheduler-flags"
	annotationPortRanges      = "verdict-proxy.github.io/port-ranges"
	annotationOutliers        = "verdict-proxy.github.io/outlier-detection"
	annotationHealthCheck     = "verdict-proxy.github.io/health-check"
	annotationAllDown         = "verdict-proxy.github.io/on-all-down"
	annotationOnRemoval       = "verdict-proxy.github.io/on-removal"
	annotationWeight          = "verdict-proxy.github.io/weight"
	annotationBackup          = "verdict-proxy.github.io/backup"
)
