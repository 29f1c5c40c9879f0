// SPDX-License-Identifier: Apache-2.0

package agent

import "github.com/trireme-mpi/trireme/internal/agent/protocol"

// keptCurves are the metrics of the job over time, for an operator that was restarted.
// They are bounded: when there are too many points, every second one is dropped.
type keptCurves struct {
	curves []protocol.Curve
	points int
}

// add adds the newest points that the operator has received.
func (kc *keptCurves) add(newest []protocol.Curve) {
	for _, one := range newest {
		if curve := kc.of(one.Name); curve != nil && len(one.Points) > 0 {
			curve.Points = append(curve.Points, one.Points[len(one.Points)-1])
			kc.points++
			kc.thin(curve, protocol.MaxPoints)
		}
	}
	if kc.points > protocol.MaxKeptPoints {
		for i := range kc.curves {
			kc.thin(&kc.curves[i], 1)
		}
	}
}

// of returns the curve of a metric; nil if there are too many.
func (kc *keptCurves) of(name string) *protocol.Curve {
	for i := range kc.curves {
		if kc.curves[i].Name == name {
			return &kc.curves[i]
		}
	}
	if len(kc.curves) == protocol.MaxCurves || len(name) > 4*protocol.MaxMetricLength {
		return nil
	}
	kc.curves = append(kc.curves, protocol.Curve{Name: name})
	return &kc.curves[len(kc.curves)-1]
}

// thin drops every second point of a curve with more points than a limit. The newest stays.
func (kc *keptCurves) thin(curve *protocol.Curve, limit int) {
	if len(curve.Points) <= limit {
		return
	}
	kept := curve.Points[:0]
	for i := (len(curve.Points) - 1) % 2; i < len(curve.Points); i += 2 {
		kept = append(kept, curve.Points[i])
	}
	kc.points -= len(curve.Points) - len(kept)
	curve.Points = kept
}

// all returns the curves; not nil, also if there are none.
func (kc *keptCurves) all() []protocol.Curve { return append([]protocol.Curve{}, kc.curves...) }
