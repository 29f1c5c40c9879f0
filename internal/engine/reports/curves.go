// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

// Curves are metrics over time, in bounded memory: when a curve is full, every second
// point of it is dropped, and from then on only every second report adds a point.
type Curves struct {
	curves []*curve
}

// Curve is one metric over time.
type Curve struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
}

// Point is a value of a metric at a time, and the step that the training was at.
type Point struct {
	Time  time.Time `json:"time"`
	Step  *int64    `json:"step,omitempty"`
	Value float64   `json:"value"`
}

type curve struct {
	name   string
	points []Point
	// every and seen: only every so many reports add a point.
	every, seen int
	// last is the newest point, which may not be among the points.
	last Point
}

func (c *Curves) add(at time.Time, status *training.TrainerStatus) {
	for _, metric := range status.Metrics {
		value, err := strconv.ParseFloat(metric.Value, 64)
		if err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
			continue
		}
		if one := c.of(metric.Name); one != nil {
			one.add(Point{Time: at, Step: status.Step, Value: value})
		}
	}
}

// of returns the curve of a metric; nil if there are too many.
func (c *Curves) of(name string) *curve {
	for _, one := range c.curves {
		if one.name == name {
			return one
		}
	}
	if len(c.curves) == protocol.MaxCurves {
		return nil
	}
	one := &curve{name: name, every: 1}
	c.curves = append(c.curves, one)
	return one
}

func (c *curve) add(point Point) {
	c.last = point
	if c.seen++; (c.seen-1)%c.every != 0 {
		return
	}
	if len(c.points) == protocol.MaxPoints {
		kept := c.points[:0]
		for i := 0; i < protocol.MaxPoints; i += 2 {
			kept = append(kept, c.points[i])
		}
		c.points, c.every = kept, 2*c.every
		if (c.seen-1)%c.every != 0 {
			return
		}
	}
	c.points = append(c.points, point)
}

// Since returns the newest point of each curve that has one after a time.
func (c *Curves) Since(after time.Time) (newest []protocol.Curve) {
	for _, one := range c.curves {
		if one.last.Time.After(after) {
			point := protocol.Point{Milliseconds: one.last.Time.UnixMilli(), Step: one.last.Step, Value: one.last.Value}
			newest = append(newest, protocol.Curve{Name: one.name, Points: []protocol.Point{point}})
		}
	}
	return newest
}

// Restore adds points from before, which the job's agent has kept. Those that are not older
// than the curve are dropped.
func (c *Curves) Restore(kept []protocol.Curve, now time.Time) {
	for _, old := range kept {
		before := now
		if i := slices.IndexFunc(c.curves, func(one *curve) bool { return one.name == old.Name }); i >= 0 {
			before = c.curves[i].points[0].Time
		}
		var points []Point
		for _, point := range old.Points {
			if at := time.UnixMilli(point.Milliseconds); at.Before(before) {
				points = append(points, Point{Time: at, Step: point.Step, Value: point.Value})
			}
		}
		if one := c.of(old.Name); one != nil && len(points) > 0 {
			one.prepend(points)
		}
	}
	// Those that were created for nothing.
	c.curves = slices.DeleteFunc(c.curves, func(one *curve) bool { return len(one.points) == 0 })
}

// prepend puts older points in front.
func (c *curve) prepend(points []Point) {
	slices.SortStableFunc(points, func(a, b Point) int { return a.Time.Compare(b.Time) })
	whole := curve{name: c.name, every: 1}
	for _, point := range append(points, c.points...) {
		whole.add(point)
	}
	if len(c.points) > 0 {
		whole.last = c.last
	}
	*c = whole
}

// All returns a copy of the curves. Each ends with the newest point.
func (c *Curves) All() []Curve {
	all := make([]Curve, 0, len(c.curves))
	for _, one := range c.curves {
		points := append([]Point(nil), one.points...)
		if !points[len(points)-1].Time.Equal(one.last.Time) {
			points = append(points, one.last)
		}
		all = append(all, Curve{Name: one.name, Points: points})
	}
	return all
}
