// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"fmt"
	"strings"
	"testing"
)

// A quantity of which nobody can compute all digits is refused before anybody tries.
func TestHugeQuantities(t *testing.T) {
	for _, value := range []string{`"915395.83E7268861526839397"`, `1e999999999`, `"1e-999999999"`, `"-2E+99999999"`, `"\u0031E99999999"`} {
		document := fmt.Sprintf(`{"spec": {"trainer": {"resourcesPerNode": {"limits": {"cpu": %s}}}}}`, value)
		if _, _, err := TrainJobs.Decode([]byte(document)); err == nil || !strings.Contains(err.Error(), "too large or too small") {
			t.Errorf("%s: %v", value, err)
		}
	}
	for _, value := range []string{`"1e3"`, `"16Gi"`, `2`, `"1E18"`} {
		document := fmt.Sprintf(`{"spec": {"trainer": {"resourcesPerNode": {"limits": {"cpu": %s}}}}}`, value)
		if _, _, err := TrainJobs.Decode([]byte(document)); err != nil {
			t.Errorf("%s: %v", value, err)
		}
	}
}
