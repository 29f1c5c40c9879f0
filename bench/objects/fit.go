// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"

	"github.com/trireme-mpi/trireme/bench/report"
)

// A fit is the straight line that is nearest to some points.
type fit struct {
	intercept, slope float64
	// determination, or R squared, is 1 where all points are on the line.
	determination float64
}

// leastSquares fits a line; it takes two points that differ.
func leastSquares(x, y []float64) fit {
	count := float64(len(x))
	var sumX, sumY float64
	for i := range x {
		sumX, sumY = sumX+x[i], sumY+y[i]
	}
	meanX, meanY := sumX/count, sumY/count
	var xx, xy, yy float64
	for i := range x {
		xx += (x[i] - meanX) * (x[i] - meanX)
		xy += (x[i] - meanX) * (y[i] - meanY)
		yy += (y[i] - meanY) * (y[i] - meanY)
	}
	found := fit{slope: xy / xx, determination: 1}
	found.intercept = meanY - found.slope*meanX
	if yy > 0 {
		found.determination = xy * xy / (xx * yy)
	}
	return found
}

// exponent is that of the power of x by which y grows: 1 for a line through the
// origin, 2 for a parabola, which R squared alone takes for a line.
func exponent(x, y []float64) float64 {
	var logX, logY []float64
	for i := range x {
		logX, logY = append(logX, math.Log(x[i])), append(logY, math.Log(y[i]))
	}
	return leastSquares(logX, logY).slope
}

// linearity is how a contestant's cost grows over loads of growing size.
func linearity(results report.Report, group, contestant, measure, over string, loads []load, size func(load) int) []report.Goal {
	var x, y []float64
	for _, load := range loads {
		if result, ok := results.Find(group, load.String(), contestant, measure); ok && result.Median() > 0 {
			x, y = append(x, float64(size(load))), append(y, result.Median())
		}
	}
	if len(x) < 3 {
		return nil
	}
	line := leastSquares(x, y)
	text := fmt.Sprintf("%s: %s = %.3g + %.3g x %s (R squared %.3f), grows by the power", contestant, measure, line.intercept, line.slope, over, line.determination)
	return []report.Goal{report.AtMost(text, exponent(x, y), linear)}
}

// linear is the power up to which a cost is called linear; 1, and what noise adds.
const linear = 1.15
