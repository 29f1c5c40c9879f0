// SPDX-License-Identifier: Apache-2.0

package jobservice

import (
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

func clockAt(second int64) *testingclock.FakePassiveClock {
	return testingclock.NewFakePassiveClock(time.Unix(second, 0))
}
