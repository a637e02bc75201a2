package proxier

import (
	"slices"

	"github.com/verdict-proxy/verdict/proxier/outlier"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Uses count what the latest plans make of checks and ejections.
type Uses struct {
	OnBackups  int // Services of which a pool has only backup endpoints, because no other endpoint is good
	SlowStarts int // endpoints whose weight grows
}

// setRows remembers what Statuses tells of a Service. Both pools of a port list an endpoint.
func (o *Outliers) setRows(name state.Name, rows []outlier.Status) {
	before := o.rows[name]
	o.uses.add(before, -1)
	if len(rows) == 0 {
		delete(o.rows, name)
		return
	}
	slices.SortStableFunc(rows, outlier.Status.Compare)
	rows = slices.CompactFunc(rows, outlier.Status.Same)
	for i := range rows {
		if rows[i].State == outlier.StateBackupInUse {
			keepSince(&rows[i], before)
		}
	}
	o.rows[name] = rows
	o.uses.add(rows, 1)
}

// keepSince has a backup endpoint be in use since the first of the plans that use it.
func keepSince(row *outlier.Status, before []outlier.Status) {
	if i, found := slices.BinarySearchFunc(before, *row, outlier.Status.Compare); found {
		row.Since = before[i].Since
	}
}

func (u *Uses) add(rows []outlier.Status, sign int) {
	onBackups := false
	for i := range rows {
		switch rows[i].State {
		case outlier.StateBackupInUse:
			onBackups = true
		case outlier.StateSlowStart:
			u.SlowStarts += sign
		}
	}
	if onBackups {
		u.OnBackups += sign
	}
}

// Statuses lists the endpoints that are suspected, failed, failing their checks, backups, or in slow start, sorted by
// address. An endpoint can be listed more than once. Any goroutine may call it.
func (o *Outliers) Statuses() []outlier.Status {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.detector.Status()
	for _, rows := range o.rows {
		list = append(list, rows...)
	}
	slices.SortStableFunc(list, outlier.Status.Compare)
	return list
}

// StatusesOf is Statuses of the endpoints of one Service. Any goroutine may call it.
func (o *Outliers) StatusesOf(name state.Name) []outlier.Status {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	list := append(o.detector.StatusOf(name), o.rows[name]...)
	slices.SortStableFunc(list, outlier.Status.Compare)
	return list
}
