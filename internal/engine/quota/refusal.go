// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CauseExceeded is the type of a cause in status.details.causes with which our
// admission says that a job exceeds the quota of its namespace.
const CauseExceeded metav1.CauseType = "NamespaceQuotaExceeded"

// IsExceeded reports whether an API server refuses an object because of a quota, and
// for no other reason.
func IsExceeded(status metav1.Status) bool {
	if status.Details == nil || len(status.Details.Causes) == 0 {
		_, exceeded := ParseExceeded(status.Message)
		return exceeded
	}
	return !slices.ContainsFunc(status.Details.Causes, func(cause metav1.StatusCause) bool { return cause.Type != CauseExceeded })
}

// exceeded is how Kubernetes says that a quota is exceeded, and which.
var exceeded = regexp.MustCompile(`exceeded quota: ([^,\s]+)`)

// ParseExceeded returns the name of the quota with which Kubernetes refuses an object.
func ParseExceeded(message string) (name string, found bool) {
	if match := exceeded.FindStringSubmatch(message); match != nil {
		return match[1], true
	}
	return "", false
}
